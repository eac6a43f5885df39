# Sets up a node: a network, folders and settings of its own. `unshare` runs this as the first process of new namespaces
# for network, mounts and processes; when it ends, the kernel removes them.
#
# Arguments: the node's address, the router's, and the file that is made when all is set up.
set -eu
address=$1 router=$2 ready=$3

# kubelet and containerd propagate mounts to pods. None leaves this namespace.
mount --make-rshared /

# The node's programs write into these folders, and not all of these paths can be configured.
for folder in /run /var/lib /var/log; do
    mount -t tmpfs -o mode=755 node "$folder"
done
mkdir /run/netns

# kubelet changes these settings, which are the whole machine's. It gets copies.
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    copy=/run/settings/$setting
    mkdir -p "${copy%/*}"
    cat "/proc/sys/$setting" > "$copy"
    mount --bind "$copy" "/proc/sys/$setting"
done

# kubelet needs an address that is not loopback. Both ends of the pair are in this namespace, so nothing gets out.
ip link set lo up
ip link add outside type veth peer name inside
ip link set outside up
ip link set inside up
ip address add "$address/24" dev inside
ip route add default via "$router" dev inside
echo 1 > /proc/sys/net/ipv4/ip_forward

: > "$ready"
# Orphans become children of this process. Ignoring the signal removes them when they end.
trap '' CHLD
exec sleep infinity
