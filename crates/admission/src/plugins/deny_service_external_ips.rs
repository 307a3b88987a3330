//! No Service gets external addresses that it did not have before: whoever writes Services could take the traffic to any
//! address with them (CVE-2020-8554).

use api::kinds::service::SERVICE;
use api::{Error, Fields};
use async_trait::async_trait;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct DenyServiceExternalIPs;

#[async_trait]
impl Plugin for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.is(&SERVICE, "")
    }

    async fn validate(&self, attributes: &Attributes, _: &dyn Lookup) -> Result<(), Error> {
        let had = attributes.old_object["spec"].list("externalIPs");
        let has = attributes.object["spec"].list("externalIPs");
        match has.iter().all(|address| had.contains(address)) {
            true => Ok(()),
            false => Err(attributes.forbidden("Use of external IPs is denied by admission control")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Cluster, create, run, update};

    fn service(addresses: &[&str]) -> Value {
        json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"externalIPs": addresses}})
    }

    #[test]
    fn addresses_may_be_kept_and_given_up_but_not_taken() {
        let judge = |request| run(&DenyServiceExternalIPs, request, &Cluster::default());
        let refused = "services \"web\" is forbidden: Use of external IPs is denied by admission control";
        assert_eq!(judge(create(&SERVICE, service(&["192.0.2.1"]))).unwrap_err(), refused);
        judge(create(&SERVICE, service(&[]))).unwrap();
        judge(create(&SERVICE, json!({"metadata": {"name": "web"}, "spec": {}}))).unwrap();

        let old = || service(&["192.0.2.1", "192.0.2.2"]);
        judge(update(&SERVICE, old(), old())).unwrap();
        judge(update(&SERVICE, old(), service(&["192.0.2.2"]))).unwrap();
        judge(update(&SERVICE, old(), service(&[]))).unwrap();
        let exchanged = service(&["192.0.2.1", "192.0.2.3"]);
        assert_eq!(judge(update(&SERVICE, old(), exchanged)).unwrap_err(), refused);
    }

    #[test]
    fn the_status_is_not_its_business() {
        let mut request = update(&SERVICE, service(&[]), service(&["192.0.2.1"]));
        request.subresource = "status".to_owned();
        run(&DenyServiceExternalIPs, request, &Cluster::default()).unwrap();
    }
}
