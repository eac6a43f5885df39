//! Which addresses may be connected to.
//!
//! Who writes a policy object names a host, and a registry names others by redirects and challenges. Neither
//! may make Bindery speak to what only this machine or its network can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::lookup_host;

use crate::error::{RegistryError, Result, invalid};
use crate::limits::ADDRESSES_MAX;
use crate::reference::is_loopback;

/// From where an address can be reached, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// This machine.
    Loopback,
    /// Its network.
    Private,
    /// Everywhere.
    Public,
}

/// Addresses of metadata services outside the link-local networks: AWS and Google by IPv6, Alibaba, Azure.
const METADATA: [IpAddr; 4] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

impl Reach {
    /// The reach of an address; none for one that no registry has: link-local, of a metadata service,
    /// unspecified, multicast, broadcast.
    pub(crate) fn of(address: IpAddr) -> Option<Self> {
        if METADATA.contains(&address) {
            return None;
        }
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => match embedded(address) {
                Some(address) => Self::of(IpAddr::V4(address)),
                None => Self::of_v6(address),
            },
        }
    }

    fn of_v4(address: Ipv4Addr) -> Option<Self> {
        let [first, second, ..] = address.octets();
        // 0.0.0.0/8 is "this network": Linux connects to itself.
        let is_no_host = address.is_link_local() || address.is_multicast() || first == 0 || first >= 240;
        // 100.64.0.0/10 is shared by carriers, and by networks of clusters.
        let is_shared = first == 100 && (64..128).contains(&second);
        match () {
            () if is_no_host => None,
            () if address.is_loopback() => Some(Self::Loopback),
            () if address.is_private() || is_shared => Some(Self::Private),
            () => Some(Self::Public),
        }
    }

    fn of_v6(address: Ipv6Addr) -> Option<Self> {
        let is_no_host =
            address.is_unspecified() || address.is_multicast() || address.is_unicast_link_local();
        match () {
            () if is_no_host => None,
            () if address.is_loopback() => Some(Self::Loopback),
            () if address.is_unique_local() => Some(Self::Private),
            () => Some(Self::Public),
        }
    }
}

/// The IPv4 address in an IPv6 address that is only another form of it: mapped, of NAT64, or of 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

/// The addresses of a host, at most [`ADDRESSES_MAX`], that may be connected to by a request that is not to
/// leave `floor` inwards.
pub(crate) async fn resolve(name: &str, port: u16, floor: Option<Reach>) -> Result<Vec<(SocketAddr, Reach)>> {
    let found = lookup_host((name, port)).await;
    let found = found.map_err(|error| {
        RegistryError::Unavailable(format!("the address of {name} cannot be found: {error}"))
    })?;
    let mut allowed = Vec::new();
    let mut refused = None;
    for address in found.take(ADDRESSES_MAX) {
        match Reach::of(address.ip()) {
            // Only the name of this machine may be its address, so that no other name leads to it.
            Some(Reach::Loopback) if !is_loopback(name) => refused = Some(address),
            Some(reach) if floor.is_none_or(|floor| reach >= floor) => allowed.push((address, reach)),
            _ => refused = Some(address),
        }
    }
    match (allowed.is_empty(), refused) {
        (false, _) => Ok(allowed),
        (true, Some(address)) => invalid(format!(
            "{name} has the address {}, which is not connected to: it is this machine's, link-local, of a \
             metadata service, or nearer than the registry",
            address.ip()
        )),
        (true, None) => Err(RegistryError::Unavailable(format!("{name} has no address"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_an_inner_address_counts_as_an_outer_one() {
        for (address, reach) in [
            ("127.0.0.1", Some(Reach::Loopback)),
            ("::1", Some(Reach::Loopback)),
            ("::ffff:127.0.0.1", Some(Reach::Loopback)),
            ("10.1.2.3", Some(Reach::Private)),
            ("100.64.0.1", Some(Reach::Private)),
            ("fd12::1", Some(Reach::Private)),
            ("64:ff9b::10.0.0.1", Some(Reach::Private)),
            ("2002:0a00:0001::", Some(Reach::Private)),
            ("140.82.121.33", Some(Reach::Public)),
            ("2606:50c0::1", Some(Reach::Public)),
            ("169.254.169.254", None),
            ("::ffff:169.254.169.254", None),
            ("64:ff9b::a9fe:a9fe", None),
            ("fe80::1", None),
            ("fd00:ec2::254", None),
            ("100.100.100.200", None),
            ("168.63.129.16", None),
            ("0.0.0.0", None),
            ("::", None),
            ("224.0.0.1", None),
            ("255.255.255.255", None),
        ] {
            assert_eq!(Reach::of(address.parse().unwrap()), reach, "{address}");
        }
    }
}
