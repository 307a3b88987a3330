//! ServiceCIDR: a range of addresses for services.

use crate::names::cidr;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static SERVICE_CIDR: Resource =
    Resource::cluster("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", "servicecidr")
        .with_subresources(&[Subresource::STATUS])
        .resetting_on_status_update(&[&["spec"], &["metadata"]])
        .with_rules(&ServiceCidrRules);

struct ServiceCidrRules;

impl Rules for ServiceCidrRules {
    fn prepare_create(&self, range: &mut Value) {
        range.set("status", json!({}));
    }

    fn validate_create(&self, range: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&range["spec"], Path::new("spec").child("cidrs"));
        let cidrs = spec.list("cidrs");
        if cidrs.is_empty() {
            problems.required(&path, "", "at least one CIDR required");
        }
        if cidrs.len() > 2 {
            problems.invalid(&path, "", spec.clone(), "may only hold up to 2 values");
            return problems.into_vec();
        }
        for (index, text) in cidrs.iter().enumerate() {
            let text = text.as_str().unwrap_or_default();
            problems.form(&path.index(index), "", text, cidr(text));
        }
        let is_v6 = |text: &Value| text.as_str().is_some_and(|text| text.contains(':'));
        if let [one, other] = cidrs
            && is_v6(one) == is_v6(other)
            && problems.is_empty()
        {
            let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
            problems.invalid(&path, "", spec["cidrs"].clone(), detail);
        }
        problems.into_vec()
    }

    /// A range of one family may get one of the other beside it, and that is all.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&new["spec"], Path::new("spec").child("cidrs"));
        let (new, old) = (spec.list("cidrs"), old["spec"].list("cidrs"));
        let upgrades = old.len() == 1 && new.len() == 2;
        if new.len() != old.len() && !upgrades {
            problems.invalid(&path, "", spec["cidrs"].clone(), "field is immutable");
            return problems.into_vec();
        }
        for (index, (new, old)) in new.iter().zip(old).enumerate() {
            if new != old {
                problems.invalid(&path.index(index), "", new.clone(), "field is immutable");
            }
        }
        if upgrades && problems.is_empty() {
            return self.validate_create(&json!({ "spec": spec }));
        }
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, range: &Value, now: i64) -> Vec<Value> {
        let cidrs: Vec<&str> = range["spec"].list("cidrs").iter().filter_map(Value::as_str).collect();
        vec![print::name(range), cidrs.join(",").into(), print::age(range, now)]
    }
}

const COLUMNS: &[Column] = &[NAME, print::text("CIDRs", "The range, or one for each family."), AGE];

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn range(cidrs: &[&str]) -> Value {
        json!({"spec": {"cidrs": cidrs}})
    }

    fn shown(problems: Vec<FieldError>, expect: Expect) {
        expect.assert_eq(&problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn there_is_one_range_for_each_family() {
        shown(
            ServiceCidrRules.validate_create(&range(&["10.0.0.0/16", "2001:db8::/64"])),
            expect![""],
        );
        shown(
            ServiceCidrRules.validate_create(&range(&["10.0.0.0/16", "10.1.0.0/16"])),
            expect![[
                r#"spec.cidrs: Invalid value: ["10.0.0.0/16","10.1.0.0/16"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"#
            ]],
        );
    }

    #[test]
    fn a_range_stays_and_may_get_one_of_the_other_family() {
        let old = range(&["10.0.0.0/16"]);
        let update = |cidrs: &[&str]| ServiceCidrRules.validate_update(&range(cidrs), &old);
        shown(update(&["10.0.0.0/16", "2001:db8::/64"]), expect![""]);
        shown(
            update(&[]),
            expect!["spec.cidrs: Invalid value: []: field is immutable"],
        );
        shown(
            update(&["10.1.0.0/16"]),
            expect![[r#"spec.cidrs[0]: Invalid value: "10.1.0.0/16": field is immutable"#]],
        );
    }
}
