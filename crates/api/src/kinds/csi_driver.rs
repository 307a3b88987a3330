//! CSIDriver: what a storage driver needs of the cluster.

use crate::print::{self, AGE, NAME, or_none};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value, repeats};
use serde_json::json;

pub static CSI_DRIVER: Resource = Resource::cluster("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "csidriver")
    .requiring_revision()
    .returning_deleted()
    .with_rules(&CsiDriverRules);

struct CsiDriverRules;

impl Rules for CsiDriverRules {
    fn default(&self, driver: &mut Value) {
        let spec = driver.ensure("spec");
        spec.fill("attachRequired", true);
        spec.fill_absent("fsGroupPolicy", "ReadWriteOnceWithFSType");
        for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            spec.fill(field, false);
        }
        if spec.list("volumeLifecycleModes").is_empty() {
            spec.set("volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    fn validate(&self, driver: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&driver["spec"], Path::new("spec"));
        for mode in spec.list("volumeLifecycleModes").iter().filter_map(Value::as_str) {
            if !["Persistent", "Ephemeral"].contains(&mode) {
                let place = path.child("volumeLifecycleModes");
                problems.extend([FieldError::not_supported(&place, mode, &["Persistent", "Ephemeral"])]);
            }
        }
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        problems.optional_one_of(spec, &path, "fsGroupPolicy", &policies);
        let tokens = spec.list("tokenRequests");
        let repeated = repeats(tokens.iter().map(|token| token.text("audience")));
        for (index, token) in tokens.iter().enumerate() {
            let path = path.child("tokenRequests").index(index);
            let audience = token.text("audience");
            if repeated[index] {
                problems.duplicate(&path, "audience", audience);
            }
            if let Some(seconds) = token["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
                let detail = "may not specify a duration less than 10 minutes";
                problems.invalid(&path, "expirationSeconds", seconds, detail);
            }
        }
        if let Some(period) = spec["nodeAllocatableUpdatePeriodSeconds"].as_i64()
            && period < 10
        {
            let detail = "must be greater than or equal to 10 seconds";
            problems.invalid(&path, "nodeAllocatableUpdatePeriodSeconds", period, detail);
        }
        if spec.has("serviceAccountTokenInSecrets") && spec.list("tokenRequests").is_empty() {
            let field = "serviceAccountTokenInSecrets";
            let detail = format!("{field} is set but no tokenRequests are specified");
            problems.invalid(&path, field, spec[field].clone(), detail);
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("spec");
        if new["spec"]["attachRequired"] != old["spec"]["attachRequired"] {
            // Upstream names the field otherwise than the API does.
            let value = new["spec"]["attachRequired"].clone();
            problems.invalid(&path, "attachedRequired", value, "field is immutable");
        }
        problems.immutable(&new["spec"], &old["spec"], &path, "volumeLifecycleModes");
        problems.into_vec()
    }

    /// Tokens in the attributes of a volume are easily logged.
    fn warnings(&self, driver: &Value) -> Vec<String> {
        let spec = &driver["spec"];
        if spec.list("tokenRequests").is_empty() || spec.has("serviceAccountTokenInSecrets") {
            return Vec::new();
        }
        let warning = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to \
                       prevent possible logging of tokens in volume attributes";
        vec![warning.to_owned()]
    }

    fn warnings_on_update(&self, new: &Value, old: &Value) -> Vec<String> {
        match new["spec"]["tokenRequests"] == old["spec"]["tokenRequests"] {
            true => Vec::new(),
            false => self.warnings(new),
        }
    }

    fn generation(&self) -> Generation {
        Generation::Changes
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, driver: &Value, now: i64) -> Vec<Value> {
        let spec = &driver["spec"];
        let modes: Vec<&str> = spec
            .list("volumeLifecycleModes")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let audiences: Vec<&str> = spec
            .list("tokenRequests")
            .iter()
            .map(|token| token.text("audience"))
            .collect();
        vec![
            print::name(driver),
            spec["attachRequired"].as_bool().unwrap_or(true).into(),
            spec.flag("podInfoOnMount").into(),
            spec.flag("storageCapacity").into(),
            if spec.has("tokenRequests") {
                audiences.join(",")
            } else {
                "<unset>".to_owned()
            }
            .into(),
            spec.flag("requiresRepublish").into(),
            or_none(modes.join(",")),
            print::age(driver, now),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::boolean(
        "AttachRequired",
        "Whether volumes are attached before they are mounted.",
    ),
    print::boolean("PodInfoOnMount", "Whether the driver is told about the pod."),
    print::boolean(
        "StorageCapacity",
        "Whether the scheduler looks at the driver's capacity.",
    ),
    print::text("TokenRequests", "The audiences of tokens the driver is given."),
    print::boolean("RequiresRepublish", "Whether volumes are published again and again."),
    print::text("Modes", "Whether volumes last, or come and go with their pods."),
    AGE,
];
