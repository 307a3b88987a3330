//! What was read of a cluster, ready to be looked up. Checks see nothing else, so that they can be tried on a file.

use std::collections::{BTreeMap, HashMap};

use api::selector::Selector;
use api::{LabelSelector, Resource, Value};
use client::when::Moment;
use serde::{Deserialize, Serialize};

use super::look::Look;

type ResourceKey = (&'static str, &'static str);

/// Objects of a cluster at about one moment.
#[derive(Default)]
pub struct Facts {
    pub now: Moment,
    lists: BTreeMap<ResourceKey, Listing>,
    by_name: HashMap<(ResourceKey, String, String), usize>,
    /// By the UID of the controller.
    owned: HashMap<String, Vec<(ResourceKey, usize)>>,
    /// Events by the namespace, kind and name of what they are about, the newest first.
    events: HashMap<(String, String, String), Vec<Value>>,
    /// The last lines of a container, by namespace, pod and container.
    logs: HashMap<(String, String, String), Vec<String>>,
    pub unseen: Vec<Unseen>,
}

#[derive(Default)]
struct Listing {
    items: Vec<Value>,
    /// Whether these are all objects of all namespaces.
    is_complete: bool,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// The resource with its group, or `pods/log`.
    pub resource: String,
    /// Empty for all namespaces, and for resources outside of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub verb: String,
    /// What the server said, where it did not say "forbidden".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

impl Facts {
    pub fn new(now: Moment) -> Facts {
        Facts {
            now,
            ..Facts::default()
        }
    }

    /// Takes in what a list has told.
    pub fn add(&mut self, resource: &Resource, items: Vec<Value>, is_complete: bool) {
        let key = key(resource);
        let listing = self.lists.entry(key).or_default();
        listing.is_complete = is_complete;
        for item in items {
            let place = (key, item.namespace().to_owned(), item.name().to_owned());
            if self.by_name.contains_key(&place) {
                continue;
            }
            let index = listing.items.len();
            if let Some(owner) = controller(&item) {
                self.owned.entry(owner.to_owned()).or_default().push((key, index));
            }
            self.by_name.insert(place, index);
            listing.items.push(item);
        }
    }

    pub fn add_events(&mut self, events: Vec<Value>) {
        for event in events {
            let about = event.at("involvedObject");
            let place = (
                about.str("namespace").to_owned(),
                about.str("kind").to_owned(),
                about.str("name").to_owned(),
            );
            self.events.entry(place).or_default().push(event);
        }
        for list in self.events.values_mut() {
            list.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
        }
    }

    pub fn add_log(&mut self, namespace: &str, pod: &str, container: &str, text: &str) {
        let lines = text.lines().map(str::to_owned).collect();
        let place = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        self.logs.insert(place, lines);
    }

    /// The objects of a resource that were read; none where it could not be read, see [`Facts::knows`].
    pub fn list(&self, resource: &Resource) -> &[Value] {
        self.lists.get(&key(resource)).map_or(&[], |listing| &listing.items)
    }

    /// The objects of a resource in one namespace.
    pub fn list_in<'a>(&'a self, resource: &Resource, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
        let items = self.list(resource).iter();
        items.filter(move |item| item.namespace() == namespace)
    }

    /// Whether a resource could be read, so that what is not found does not exist.
    pub fn knows(&self, resource: &Resource) -> bool {
        self.lists.contains_key(&key(resource))
    }

    /// Whether all objects of a resource were read, in all namespaces.
    pub fn knows_all(&self, resource: &Resource) -> bool {
        self.lists
            .get(&key(resource))
            .is_some_and(|listing| listing.is_complete)
    }

    pub fn find(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&Value> {
        let place = (key(resource), namespace.to_owned(), name.to_owned());
        let index = *self.by_name.get(&place)?;
        self.lists.get(&key(resource))?.items.get(index)
    }

    /// Whether it is certain that there is no such object.
    pub fn lacks(&self, resource: &Resource, namespace: &str, name: &str) -> bool {
        self.knows(resource) && self.find(resource, namespace, name).is_none()
    }

    /// What a controller has made, with the resource as group and plural name.
    pub fn owned_by(&self, owner: &Value) -> Vec<(ResourceKey, &Value)> {
        let owned = self.owned.get(owner.uid()).into_iter().flatten();
        owned
            .filter_map(|(key, index)| Some((*key, self.lists.get(key)?.items.get(*index)?)))
            .collect()
    }

    /// Events about an object, the newest first. Those of an earlier object of that name are left out.
    pub fn events<'a>(&'a self, resource: &Resource, object: &'a Value) -> impl Iterator<Item = &'a Value> + use<'a> {
        // Events about objects outside of namespaces name none.
        let place = (
            object.namespace().to_owned(),
            resource.kind.to_owned(),
            object.name().to_owned(),
        );
        let events = self.events.get(&place).into_iter().flatten();
        events.filter(|event| {
            let uid = event.str("involvedObject.uid");
            // Some components write a node's name in place of its UID.
            uid.is_empty() || uid == object.uid() || uid == object.name()
        })
    }

    /// The newest event with this reason.
    pub fn event<'a>(&'a self, resource: &Resource, object: &'a Value, reason: &'a str) -> Option<&'a Value> {
        self.events(resource, object)
            .find(move |event| event.str("reason") == reason)
    }

    pub fn log(&self, pod: &Value, container: &str) -> &[String] {
        let place = (pod.namespace().to_owned(), pod.name().to_owned(), container.to_owned());
        self.logs.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Seconds since a time that an object tells.
    pub fn seconds_since(&self, time: Option<Moment>) -> u64 {
        time.map_or(0, |time| self.now.since(time).as_secs())
    }

    pub fn age(&self, object: &Value) -> u64 {
        self.seconds_since(object.moment("metadata.creationTimestamp"))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (ResourceKey, &Value)> {
        let lists = self.lists.iter();
        lists.flat_map(|(key, listing)| listing.items.iter().map(|item| (*key, item)))
    }
}

pub fn key(resource: &Resource) -> ResourceKey {
    (resource.group, resource.plural)
}

/// The UID of the object that manages this one.
pub fn controller(object: &Value) -> Option<&str> {
    let mut owners = object.items("metadata.ownerReferences").iter();
    owners
        .find(|owner| owner.yes("controller"))
        .map(|owner| owner.str("uid"))
}

/// The selector that an object holds at a path.
pub fn selector(object: &Value, path: &str) -> Selector {
    let selector = LabelSelector::deserialize(object.at(path)).unwrap_or_default();
    Selector::from(&selector)
}

/// A plain map of labels, as Services select by.
pub fn map_selector(object: &Value, path: &str) -> Selector {
    let pairs = object.pairs(path).into_iter();
    let requirements = pairs
        .map(|(key, value)| api::selector::Requirement::Equals(key.to_owned(), value.to_owned()))
        .collect();
    Selector { requirements }
}

pub fn selects(selector: &Selector, object: &Value) -> bool {
    let labels = object.at("metadata.labels");
    selector.matches_with(|key| labels.get(key).and_then(Value::as_str))
}

fn last_seen(event: &Value) -> Option<Moment> {
    [
        "series.lastObservedTime",
        "lastTimestamp",
        "eventTime",
        "firstTimestamp",
    ]
    .iter()
    .find_map(|path| event.moment(path))
}
