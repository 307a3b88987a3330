//! Lets this node send to Services' addresses, which exist only in rules.

use network::route::{LOOPBACK, Route};
use network::{Cidr, netlink};

/// Sends need a route before rules see them. A machine without a default route gets one for these blocks, to itself:
/// what rules lead on to a pod is routed again, and the rest is rejected.
pub fn ensure(blocks: &[Cidr]) -> Result<(), netlink::Error> {
    let route = Route::open()?;
    for &block in blocks {
        let first = block.nth(1).unwrap_or(block.address());
        if route.link_towards(first)?.is_none() {
            route.set_route(block, LOOPBACK, None)?;
        }
    }
    Ok(())
}

/// Takes back what [`ensure`] did.
pub fn remove(blocks: &[Cidr]) -> Result<(), netlink::Error> {
    let route = Route::open()?;
    for &block in blocks {
        route.remove_route(block, LOOPBACK)?;
    }
    Ok(())
}
