//! An ingress that names no class gets the default one, if there is one.

use api::kinds::ingress::INGRESS;
use api::kinds::ingress_class::INGRESS_CLASS;
use api::{Error, Fields};
use async_trait::async_trait;

use super::default_storage_class::newest_default;
use crate::{Attributes, Lookup, Operation, Plugin};

pub struct DefaultIngressClass;

const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

#[async_trait]
impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is(&INGRESS, "")
    }

    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let ingress = &attributes.object;
        if ingress["spec"].has("ingressClassName") || ingress["metadata"]["annotations"].has(CLASS_ANNOTATION) {
            return Ok(());
        }
        if let Some(name) = newest_default(lookup.list(&INGRESS_CLASS, ""), &[IS_DEFAULT]) {
            attributes.object.ensure("spec").set("ingressClassName", name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, run};

    #[test]
    fn the_default_class_fills_in() {
        let metadata = json!({"name": "nginx", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}});
        let cluster = Cluster(vec![(&INGRESS_CLASS, json!({"metadata": metadata}))]);
        let ingress = create(&INGRESS, json!({"metadata": {"name": "web"}}));
        let admitted = run(&DefaultIngressClass, ingress, &cluster).unwrap();
        assert_eq!(admitted["spec"]["ingressClassName"], "nginx");
    }
}
