//! The network that an administrator configured: the first file of the configuration directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::CniError;

/// A network: plugins that are called one after the other, each given what those before it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfig {
    pub cni_version: String,
    pub name: String,
    #[serde(default)]
    pub disable_check: bool,
    /// As the administrator wrote them: plugins have fields of their own.
    pub plugins: Vec<Map<String, Value>>,
}

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("cniVersion {0:?} is not supported; use 1.0.0")]
    Version(String),
    #[error("it lists no plugins")]
    NoPlugins,
    #[error("a plugin has no type, or its type is not a plain name")]
    PluginType,
}

/// The versions whose results look alike. Those before 0.3.1 name addresses differently and have no chains.
const VERSIONS: [&str; 5] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0", "0.3.0"];
/// The versions that know `CHECK`.
const CHECKING_VERSIONS: [&str; 3] = ["0.4.0", "1.0.0", "1.1.0"];

impl NetworkConfig {
    /// Reads the first file, by name, that ends in `.conflist`, `.conf` or `.json`.
    pub fn load(directory: &Path) -> Result<NetworkConfig, CniError> {
        let absent = || CniError::NoConfiguration {
            directory: directory.to_owned(),
        };
        let error = |source| CniError::File {
            operation: "list",
            path: directory.to_owned(),
            source,
        };
        let entries = match fs::read_dir(directory) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Err(absent()),
            other => other.map_err(error)?,
        };
        let paths: Result<Vec<PathBuf>, io::Error> = entries.map(|entry| Ok(entry?.path())).collect();
        let is_config = |path: &PathBuf| {
            let extension = path.extension().and_then(|extension| extension.to_str());
            matches!(extension, Some("conflist" | "conf" | "json"))
        };
        let first = paths.map_err(error)?.into_iter().filter(is_config).min();
        NetworkConfig::read(&first.ok_or_else(absent)?)
    }

    fn read(path: &Path) -> Result<NetworkConfig, CniError> {
        let text = fs::read(path).map_err(|source| CniError::File {
            operation: "read",
            path: path.to_owned(),
            source,
        })?;
        NetworkConfig::parse(&text).map_err(|source| CniError::BadConfiguration {
            path: path.to_owned(),
            source,
        })
    }

    /// A file holds a list of plugins, or a single one with the network's fields among its own.
    fn parse(text: &[u8]) -> Result<NetworkConfig, ConfigError> {
        let mut fields: Map<String, Value> = serde_json::from_slice(text)?;
        if !fields.contains_key("plugins") {
            let plugin = fields.clone();
            fields.insert("plugins".to_owned(), Value::Array(vec![Value::Object(plugin)]));
        }
        let config: NetworkConfig = serde_json::from_value(Value::Object(fields))?;
        if !VERSIONS.contains(&config.cni_version.as_str()) {
            return Err(ConfigError::Version(config.cni_version));
        }
        if config.plugins.is_empty() {
            return Err(ConfigError::NoPlugins);
        }
        match config.plugins.iter().find(|plugin| plugin_type(plugin).is_none()) {
            Some(_) => Err(ConfigError::PluginType),
            None => Ok(config),
        }
    }

    pub fn can_check(&self) -> bool {
        !self.disable_check && CHECKING_VERSIONS.contains(&self.cni_version.as_str())
    }
}

/// The name of a plugin's program. It is never a path, so that a program outside the given directories is not run.
pub fn plugin_type(plugin: &Map<String, Value>) -> Option<&str> {
    let name = plugin.get("type")?.as_str()?;
    (!name.is_empty() && !name.contains('/') && name != "." && name != "..").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_plugin_is_a_list_of_one() {
        let config = NetworkConfig::parse(br#"{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "mtu": 1400}"#);
        let config = config.unwrap();
        assert_eq!(plugin_type(&config.plugins[0]), Some("bridge"));
        assert_eq!(config.plugins[0]["mtu"], 1400);
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_reason() {
        let reason = |text: &str| NetworkConfig::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(reason("{").contains("EOF"));
        assert!(reason(r#"{"cniVersion": "1.0.0", "plugins": []}"#).contains("missing field `name`"));
        assert_eq!(
            reason(r#"{"cniVersion": "0.2.0", "name": "n", "type": "bridge"}"#),
            "cniVersion \"0.2.0\" is not supported; use 1.0.0"
        );
        assert_eq!(
            reason(r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "../sh"}]}"#),
            "a plugin has no type, or its type is not a plain name"
        );
    }

    #[test]
    fn the_first_file_by_name_counts() {
        let dir = tempfile::tempdir().unwrap();
        let missing = NetworkConfig::load(&dir.path().join("none")).unwrap_err().to_string();
        assert!(missing.starts_with("no network is configured in"), "{missing}");
        for (file, name) in [
            ("20-b.conf", "second"),
            ("10-a.conflist", "first"),
            ("00-readme.txt", "none"),
        ] {
            let text = format!(r#"{{"cniVersion": "1.0.0", "name": "{name}", "plugins": [{{"type": "x"}}]}}"#);
            fs::write(dir.path().join(file), text).unwrap();
        }
        assert_eq!(NetworkConfig::load(dir.path()).unwrap().name, "first");
    }
}
