//! What befalls components beside their requests: they are cut off, killed, and lose their watches.

use std::time::Duration;

use crate::history::Shared;
use crate::world::World;

/// The annotation by which a script says that the doomed node's power fails: on the namespace of the scenario.
pub const POWER_FAILURE: &str = "simulation/power-failure";

/// Lets things go wrong now and then until `played` ends.
pub async fn reign(world: &mut World, played: impl Future<Output = ()>) {
    if !world.is_faulty() {
        return played.await;
    }
    let mut played = std::pin::pin!(played);
    loop {
        let peace = Duration::from_secs(2) + Duration::from_secs(20).mul_f64(clock::fraction());
        if tokio::time::timeout(peace, played.as_mut()).await.is_ok() {
            return;
        }
        let number = world.components.len() as u32;
        let component = &mut world.components[clock::below(number) as usize];
        match (&component.task, clock::below(4)) {
            (None, _) => component.start(),
            (_, 0 | 1) => component.link.cut(component.longest_cut.mul_f64(clock::fraction())),
            (_, 2) => component.link.end_watches(),
            // Nodes come back at once: what they are is in the API.
            _ if component.longest_cut < Duration::from_secs(20) => component.start(),
            _ => component.kill(),
        }
    }
}

/// Returns once the script says that the power has failed.
pub async fn power_failure(history: &Shared) {
    let has_failed = || {
        history.with(|history| {
            let namespace = history.objects.get("/registry/namespaces/spot");
            namespace.is_some_and(|namespace| namespace["metadata"]["annotations"][POWER_FAILURE].is_string())
        })
    };
    while !has_failed() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
