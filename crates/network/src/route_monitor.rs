//! Tells when routes of the host may have vanished, whoever took them away.

use std::time::Duration;

use crate::bridge::is_port_name;
use crate::netlink::{Attributes, Error, Message, Monitor};
use crate::route::LINK_HEADER;

/// Changes come in bursts; what one began is over after this.
const SETTLING: Duration = Duration::from_millis(50);

/// Is told of the routes, links and addresses of one network namespace.
#[derive(Debug)]
pub struct RouteMonitor(Monitor);

impl RouteMonitor {
    /// Listens in the calling thread's namespace. Needs a runtime.
    pub fn open() -> Result<RouteMonitor, Error> {
        Monitor::links().map(RouteMonitor)
    }

    /// Waits until a route was removed, or a link or an address changed: the kernel removes routes with these and does
    /// not tell of each.
    pub async fn disturbed(&self) -> Result<(), Error> {
        self.0.changed(may_concern_routes).await?;
        tokio::time::sleep(SETTLING).await;
        self.0.drain()
    }
}

/// The links of pods come and go all the time and no route of the host leads through them.
fn may_concern_routes(message: &Message<'_>) -> bool {
    match message.kind {
        libc::RTM_DELROUTE => {
            let (table, kind) = (message.body.get(4), message.body.get(7));
            table == Some(&libc::RT_TABLE_MAIN) && kind == Some(&libc::RTN_UNICAST)
        }
        libc::RTM_NEWADDR | libc::RTM_DELADDR => true,
        libc::RTM_NEWLINK | libc::RTM_DELLINK => {
            let name = Attributes::after(message, LINK_HEADER).text(libc::IFLA_IFNAME);
            !name.is_some_and(is_port_name)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Writer, messages};

    fn concerns(kind: u16, header: &[u8], name: &str) -> bool {
        let mut writer = Writer::new();
        writer.message(kind, 0, |w| {
            w.raw(header);
            if !name.is_empty() {
                w.text(libc::IFLA_IFNAME, name);
            }
        });
        let bytes = writer.bytes().to_vec();
        let first = messages(&bytes).next().unwrap();
        may_concern_routes(&first)
    }

    #[test]
    fn links_of_pods_and_routes_of_other_tables_are_no_concern() {
        assert!(concerns(libc::RTM_DELLINK, &[0; LINK_HEADER], "eth0"));
        assert!(!concerns(libc::RTM_DELLINK, &[0; LINK_HEADER], "kv9c5db99683c2"));
        assert!(!concerns(libc::RTM_NEWROUTE, &[0; 12], ""));
        let mut route = [0; 12];
        (route[4], route[7]) = (libc::RT_TABLE_MAIN, libc::RTN_UNICAST);
        assert!(concerns(libc::RTM_DELROUTE, &route, ""));
        route[4] = libc::RT_TABLE_LOCAL;
        assert!(!concerns(libc::RTM_DELROUTE, &route, ""));
    }
}
