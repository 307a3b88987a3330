//! Which pod has to go when something runs out. No IO.

use crate::pod::quantity::Milli;
use crate::pod::resources::pod_compute;
use crate::pod::{ContainerKind, Pod};
use crate::pressure::{Pressure, Shortage, Signal};

/// A pod that could go, and how much it uses of what is short: in all, and by container where that is known.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub pod: &'a Pod,
    pub used: u64,
    pub containers: Vec<(String, u64)>,
}

/// The pod that is evicted first, and what it is told.
pub fn victim(shortage: &Shortage, candidates: &[Candidate<'_>]) -> Option<(String, String)> {
    let evictable = candidates.iter().filter(|candidate| !candidate.pod.is_critical());
    let first = evictable.min_by_key(|candidate| rank(shortage.signal, candidate))?;
    Some((first.pod.metadata.uid.clone(), message(shortage, first)))
}

/// The lowest goes first: those above their requests, then the less important, then the larger.
fn rank(signal: Signal, candidate: &Candidate<'_>) -> (bool, i32, std::cmp::Reverse<i128>) {
    let requested = request(signal, candidate.pod);
    let over = i128::from(candidate.used) - i128::from(requested.unwrap_or(0));
    let is_over = requested.is_some() && over > 0;
    (!is_over, candidate.pod.spec.priority, std::cmp::Reverse(over))
}

/// What a pod asked for; none where nobody can ask.
fn request(signal: Signal, pod: &Pod) -> Option<u64> {
    let bytes = match signal {
        Signal::MemoryAvailable => pod_compute(pod).memory_request,
        Signal::NodefsAvailable | Signal::ImagefsAvailable => pod
            .all_containers()
            .filter(|(kind, _)| *kind != ContainerKind::Init)
            .map(|(_, container)| storage(&container.resources.requests))
            .sum(),
        _ => return None,
    };
    Some(u64::try_from(bytes).unwrap_or(0))
}

fn storage(list: &std::collections::BTreeMap<String, String>) -> i64 {
    let text = list.get("ephemeral-storage");
    text.and_then(|text| Milli::parse(text)).map_or(0, Milli::value)
}

/// In upstream's words.
fn message(shortage: &Shortage, candidate: &Candidate<'_>) -> String {
    let resource = shortage.signal.resource();
    let quantity = |amount: u64| match shortage.signal.is_bytes() {
        true => format!("{}Ki", amount / 1024),
        false => amount.to_string(),
    };
    let (threshold, available) = (quantity(shortage.threshold), quantity(shortage.available));
    let mut message =
        format!("The node was low on resource: {resource}. Threshold quantity: {threshold}, available: {available}. ");
    for (name, used) in &candidate.containers {
        let Some((_, container)) = candidate.pod.container(name) else {
            continue;
        };
        let requested = match shortage.signal.pressure() {
            Pressure::Memory => {
                let text = container.resources.requests.get("memory");
                text.and_then(|text| Milli::parse(text)).map_or(0, Milli::value)
            }
            Pressure::Disk => storage(&container.resources.requests),
            Pressure::Pid => 0,
        };
        if i128::from(*used) > i128::from(requested) {
            message.push_str(&format!(
                "Container {name} was using {}, request is {}, has larger consumption of {resource}. ",
                quantity(*used),
                match requested {
                    0 => "0".to_owned(),
                    requested => quantity(requested as u64),
                }
            ));
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, priority: i32, request: &str) -> Pod {
        let text = format!(
            "{{metadata: {{uid: {uid}}}, spec: {{priority: {priority}, containers: [{{name: c, resources: {{requests: \
             {{memory: {request}}}}}}}]}}}}"
        );
        serde_saphyr::from_str(&text).unwrap()
    }

    fn shortage(signal: Signal) -> Shortage {
        Shortage {
            signal,
            available: 50 << 20,
            threshold: 100 << 20,
            written: "100Mi".to_owned(),
        }
    }

    fn first(signal: Signal, pods: &[(Pod, u64)]) -> Option<String> {
        let candidates: Vec<Candidate<'_>> = pods
            .iter()
            .map(|(pod, used)| Candidate {
                pod,
                used: used << 20,
                containers: Vec::new(),
            })
            .collect();
        victim(&shortage(signal), &candidates).map(|(uid, _)| uid)
    }

    #[test]
    fn pods_above_their_requests_go_first_then_the_less_important_then_the_larger() {
        let memory = Signal::MemoryAvailable;
        let above = || (pod("above", 10, "10Mi"), 20);
        let within = || (pod("within", 0, "500Mi"), 400);
        assert_eq!(first(memory, &[within(), above()]).as_deref(), Some("above"));
        let humble = || (pod("humble", 1, "10Mi"), 15);
        assert_eq!(first(memory, &[above(), humble()]).as_deref(), Some("humble"));
        let large = || (pod("large", 1, "10Mi"), 30);
        assert_eq!(first(memory, &[humble(), large()]).as_deref(), Some("large"));
    }

    #[test]
    fn critical_pods_stay() {
        let critical = (pod("critical", 2_000_000_000, "0"), 900);
        assert_eq!(first(Signal::MemoryAvailable, &[critical]), None);
    }

    #[test]
    fn nobody_asks_for_processes() {
        let (small, important) = ((pod("small", 0, "0"), 1), (pod("important", 5, "0"), 99));
        assert_eq!(
            first(Signal::PidAvailable, &[important, small]).as_deref(),
            Some("small")
        );
    }

    #[test]
    fn the_message_names_what_was_short_and_who_used_it() {
        let pod = pod("u", 0, "1Mi");
        let candidate = Candidate {
            pod: &pod,
            used: 2 << 20,
            containers: vec![("c".to_owned(), 2 << 20)],
        };
        let (_, message) = victim(&shortage(Signal::MemoryAvailable), &[candidate]).unwrap();
        assert_eq!(
            message,
            "The node was low on resource: memory. Threshold quantity: 102400Ki, available: 51200Ki. Container c was \
             using 2048Ki, request is 1024Ki, has larger consumption of memory. "
        );
    }
}
