//! What the cluster's administrator says about a driver, in its CSIDriver.

use api::kinds::csi_driver::CSI_DRIVER;
use client::Client;
use serde::Deserialize;

use super::volume::CsiVolume;
use crate::volumes::DriverError;

/// A CSIDriver's spec. Without the object the defaults hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DriverSpec {
    pub attach_required: bool,
    pub pod_info_on_mount: bool,
    pub fs_group_policy: String,
    pub volume_lifecycle_modes: Vec<String>,
    pub token_requests: Vec<TokenRequest>,
    pub requires_republish: bool,
    pub service_account_token_in_secrets: bool,
    #[serde(skip)]
    is_missing: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TokenRequest {
    pub audience: String,
    pub expiration_seconds: Option<i64>,
}

impl Default for DriverSpec {
    fn default() -> DriverSpec {
        DriverSpec {
            attach_required: true,
            pod_info_on_mount: false,
            fs_group_policy: "ReadWriteOnceWithFSType".to_owned(),
            volume_lifecycle_modes: vec!["Persistent".to_owned()],
            token_requests: Vec::new(),
            requires_republish: false,
            service_account_token_in_secrets: false,
            is_missing: false,
        }
    }
}

impl DriverSpec {
    pub async fn fetch(client: &Client, driver: &str) -> Result<DriverSpec, DriverError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct CsiDriver {
            spec: DriverSpec,
        }
        match client.resource(&CSI_DRIVER).get::<CsiDriver>(driver).await {
            Ok(found) => Ok(found.spec),
            Err(error) if error.is_not_found() => Ok(DriverSpec {
                is_missing: true,
                ..DriverSpec::default()
            }),
            Err(error) => Err(DriverError::Object(error)),
        }
    }

    /// Whether the driver can have volumes of this kind, in upstream's words if not.
    pub fn check_mode(&self, volume: &CsiVolume) -> Result<(), DriverError> {
        let mode = volume.lifecycle_mode();
        if self.volume_lifecycle_modes.iter().any(|known| known == mode) {
            return Ok(());
        }
        let reason = match self.is_missing {
            true => "no CSIDriver object".to_owned(),
            false => {
                let modes: Vec<String> = self
                    .volume_lifecycle_modes
                    .iter()
                    .map(|mode| format!("{mode:?}"))
                    .collect();
                format!("only supports [{}]", modes.join(" "))
            }
        };
        Err(DriverError::Mode {
            mode,
            driver: volume.driver.clone(),
            reason,
        })
    }

    /// Whether the kubelet gives the volume's files to the pod's group.
    pub fn lets_kubelet_own(&self, volume: &CsiVolume) -> bool {
        if volume.read_only || volume.is_block {
            return false;
        }
        let is_once = |mode: &String| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod";
        match self.fs_group_policy.as_str() {
            "None" => false,
            "File" => true,
            _ => !volume.fs_type.is_empty() && (volume.is_ephemeral || volume.access_modes.iter().any(is_once)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_files_to_a_group_depends_on_the_policy() {
        let owns = |policy: &str, volume: &CsiVolume| {
            let spec = DriverSpec {
                fs_group_policy: policy.to_owned(),
                ..DriverSpec::default()
            };
            spec.lets_kubelet_own(volume)
        };
        let plain = CsiVolume {
            fs_type: "ext4".to_owned(),
            access_modes: vec!["ReadWriteOnce".to_owned()],
            ..CsiVolume::default()
        };
        let many = CsiVolume {
            access_modes: vec!["ReadWriteMany".to_owned()],
            ..plain.clone()
        };
        let untyped = CsiVolume {
            fs_type: String::new(),
            ..plain.clone()
        };
        let read_only = CsiVolume {
            read_only: true,
            ..plain.clone()
        };
        let default = "ReadWriteOnceWithFSType";
        assert_eq!(
            [&plain, &many, &untyped, &read_only].map(|it| owns(default, it)),
            [true, false, false, false]
        );
        assert_eq!(
            [&plain, &many, &untyped, &read_only].map(|it| owns("File", it)),
            [true, true, true, false]
        );
        assert!(!owns("None", &plain));
    }

    #[test]
    fn a_pods_own_volume_needs_a_driver_that_says_so() {
        let inline = CsiVolume {
            driver: "d".to_owned(),
            is_ephemeral: true,
            ..CsiVolume::default()
        };
        let missing = DriverSpec {
            is_missing: true,
            ..DriverSpec::default()
        };
        assert_eq!(
            missing.check_mode(&inline).unwrap_err().to_string(),
            "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode \"Ephemeral\" not supported \
             by driver d (no CSIDriver object)"
        );
        assert_eq!(
            DriverSpec::default().check_mode(&inline).unwrap_err().to_string(),
            "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode \"Ephemeral\" not supported \
             by driver d (only supports [\"Persistent\"])"
        );
        let able = DriverSpec {
            volume_lifecycle_modes: vec!["Persistent".to_owned(), "Ephemeral".to_owned()],
            ..DriverSpec::default()
        };
        assert!(able.check_mode(&inline).is_ok());
    }
}
