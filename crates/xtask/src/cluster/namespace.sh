# Makes this process the first of a node: network, folders and settings that are the node's alone. It is started by `unshare`
# in new namespaces of network, mounts and processes; the kernel takes all of it down with this process.
#
# Arguments: the node's address, the router's, and the file that says that all is there.
set -eu
address=$1 router=$2 ready=$3

# kubelet and containerd pass mounts on to pods; none leaves this namespace.
mount --make-rshared /

# Whatever the node's programs write where they like to write is the node's own. Much of it cannot be configured.
for folder in /run /var/lib /var/log; do
    mount -t tmpfs -o mode=755 node "$folder"
done
mkdir /run/netns

# kubelet changes these for the whole machine. It may change copies.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    copy=/run/settings/$setting
    mkdir -p "${copy%/*}"
    cat "/proc/sys/$setting" > "$copy"
    mount --bind "$copy" "/proc/sys/$setting"
done

# An outside for the node to have an address on, kubelet refuses loopback. The other end is here too: nothing gets out.
ip link set lo up
ip link add outside type veth peer name inside
ip link set outside up
ip link set inside up
ip address add "$address/24" dev inside
ip route add default via "$router" dev inside
echo 1 > /proc/sys/net/ipv4/ip_forward

: > "$ready"
# Children of the dead become this process's; ignored, they are gone when they end.
trap '' CHLD
exec sleep infinity
