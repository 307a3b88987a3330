//! Addresses that are written in an unusual way.

use std::net::{IpAddr, Ipv6Addr};

use crate::Path;

/// What to say of an address that is valid, but not as one writes it.
pub fn of_address(text: &str, path: &Path) -> Option<String> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() && canonical(address) != text => Some(format!(
            "{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({:?})",
            canonical(address)
        )),
        _ => None,
    }
}

/// The same for a range.
pub fn of_range(text: &str, path: &Path) -> Option<String> {
    let (address, length) = text.split_once('/')?;
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => {
            let usual = format!("{}/{length}", canonical(address));
            (usual != text)
                .then(|| format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({usual:?})"))
        }
        _ => None,
    }
}

fn canonical(address: Ipv6Addr) -> String {
    address.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_notations_are_told() {
        let path = Path::new("spec.externalIPs[0]");
        assert_eq!(
            of_address("2001:DB8::0:1", &path).unwrap(),
            "spec.externalIPs[0]: IPv6 address \"2001:DB8::0:1\" should be in RFC 5952 canonical format \
             (\"2001:db8::1\")"
        );
        assert_eq!(of_address("10.0.0.1", &path), None);
        assert_eq!(of_range("2001:db8::/32", &path), None);
        assert!(of_range("2001:DB8::/32", &path).is_some());
    }
}
