//! What claims of volumes and of devices use.

use schema::quantity::Quantity;

use super::number;
use crate::pod_spec::resources::{Amounts, read};
use crate::{Fields, Value};

const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The devices that one request can be given at most.
const MOST_DEVICES: i64 = 32;

pub fn add_volume_claim(claim: &Value, usage: &mut Amounts) {
    let spec = &claim["spec"];
    let class = claim["metadata"]["annotations"][STORAGE_CLASS].as_str();
    let class = class.unwrap_or(spec.text("storageClassName"));
    let wanted = read(&spec["resources"], "requests").remove("storage");
    let allocated = read(&claim["status"], "allocatedResources").remove("storage");
    // After a failed expansion more may be allocated than is still wanted.
    let storage = wanted.map(|wanted| whole(allocated.map_or(wanted.clone(), |allocated| allocated.max(wanted))));
    let mut insert = |name: &str, amount: Quantity| {
        if !class.is_empty() {
            usage.insert(format!("{class}{OF_STORAGE_CLASS}{name}"), amount.clone());
        }
        usage.insert(name.to_owned(), amount);
    };
    insert("persistentvolumeclaims", number(1));
    if let Some(storage) = storage {
        insert("requests.storage", storage);
    }
}

pub fn tracks_volume_claims(name: &str) -> bool {
    let bare = name.split_once(OF_STORAGE_CLASS).map_or(name, |(_, bare)| bare);
    matches!(bare, "persistentvolumeclaims" | "requests.storage")
}

/// Requests with alternatives use the most that any of them would.
pub fn add_resource_claim(claim: &Value, usage: &mut Amounts) {
    for request in claim["spec"]["devices"].list("requests") {
        let exactly = request.has("exactly").then(|| &request["exactly"]);
        let mut of_request = Amounts::new();
        for choice in exactly.into_iter().chain(request.list("firstAvailable")) {
            let name = format!("{}{OF_DEVICE_CLASS}", choice.text("deviceClassName"));
            let count = match choice.text("allocationMode") {
                "All" => MOST_DEVICES,
                _ => choice.number("count").max(1),
            };
            let held = of_request.entry(name).or_insert(number(0));
            *held = number(count).max(held.clone());
        }
        for (name, count) in of_request {
            usage.entry(name).or_insert(number(0)).add(&count);
        }
    }
}

pub fn tracks_resource_claims(name: &str) -> bool {
    name.ends_with(OF_DEVICE_CLASS)
}

/// Amounts of storage are counted in whole bytes.
fn whole(amount: Quantity) -> Quantity {
    if amount.milli_value() % 1000 == 0 {
        amount
    } else {
        Quantity::new(amount.value(), amount.format())
    }
}
