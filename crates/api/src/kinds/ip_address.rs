use crate::Resource;

pub static IP_ADDRESS: Resource =
    Resource::cluster("networking.k8s.io", "v1", "IPAddress", "ipaddresses", "ipaddress").short(&["ip"]);
