//! Security contexts of pods and containers.

use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSecurityContext {
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub run_as_non_root: Option<bool>,
    pub supplemental_groups: Vec<i64>,
    pub supplemental_groups_policy: Option<String>,
    pub fs_group: Option<i64>,
    pub fs_group_change_policy: Option<String>,
    pub se_linux_options: Option<SelinuxOptions>,
    pub seccomp_profile: Option<Profile>,
    pub app_armor_profile: Option<Profile>,
    pub sysctls: Vec<Sysctl>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SecurityContext {
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub run_as_non_root: Option<bool>,
    pub capabilities: Capabilities,
    pub privileged: bool,
    pub read_only_root_filesystem: bool,
    pub allow_privilege_escalation: Option<bool>,
    pub proc_mount: Option<String>,
    pub se_linux_options: Option<SelinuxOptions>,
    pub seccomp_profile: Option<Profile>,
    pub app_armor_profile: Option<Profile>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    pub add: Vec<String>,
    pub drop: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SelinuxOptions {
    pub user: String,
    pub role: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub level: String,
}

/// A seccomp or AppArmor profile.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Profile {
    #[serde(rename = "type")]
    pub kind: String,
    pub localhost_profile: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Sysctl {
    pub name: String,
    pub value: String,
}
