use crate::{Resource, Subresource};

pub static SERVICE_CIDR: Resource =
    Resource::cluster("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", "servicecidr")
        .with_subresources(&[Subresource::STATUS]);
