//! A row of the table of served resources, and what its kind decides for itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use schema::ownership::Filter;

use crate::{FieldError, Value};

/// Fields of an object, each as the names on the way to it.
pub type FieldPaths = &'static [&'static [&'static str]];

/// One served resource. Built-in ones are statics in `kinds/`; custom ones are made from their definition with
/// interned names.
pub struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    pub verbs: &'static [Verb],
    pub subresources: &'static [Subresource],
    /// Where objects are kept below the store's root, as upstream lays them out: `pods`, `services/specs`, `minions`.
    /// Empty for resources that are answered but never stored.
    pub storage: &'static str,
    /// The version in which objects are stored when it is not this one (`autoscaling/v1` keeps its objects as `v2`).
    pub storage_version: Option<(&'static str, &'static str)>,
    /// Whether a definition made it; built-in resources are rows in `kinds/`.
    pub custom: bool,
    /// The text that every answer about a deprecated resource carries.
    pub deprecation: Option<&'static str>,
    /// Whether an update must name the revision that it was made from.
    pub requires_revision: bool,
    /// Whether a deletion is answered with the deleted object, where others answer with a Status.
    pub returns_deleted: bool,
    /// Whether dependents are left behind by a deletion that does not say what becomes of them, as it was before there
    /// was garbage collection.
    pub orphans_dependents: bool,
    /// What is warned about when a deletion does not say what becomes of dependents.
    pub deletion_warning: Option<&'static str>,
    /// Whether the objects on their way out carry the grace period that they were given. Some kinds say themselves when
    /// they are gone.
    pub records_grace_period: bool,
    /// How long objects are kept.
    pub time_to_live: Option<Duration>,
    /// Whether updates are worth a mark in traces. Heartbeats would push everything else out.
    pub traces_updates: bool,
    /// A field that watchers commonly select by, so that a change wakes only those whom it concerns.
    pub indexed_field: Option<&'static IndexedField>,
    /// Whether upstream converts the field selectors of this kind itself, which shows in how unknown ones are refused.
    pub converts_field_labels: bool,
    /// Whether finalizers need no domain in their names.
    pub allows_unqualified_finalizers: bool,
    /// The group under which messages name an invalid object.
    pub error_group: &'static str,
    /// What a write to the object resets and so cannot own, where there is a status subresource.
    pub update_resets: FieldPaths,
    /// What a write to the status resets and so cannot own.
    pub status_resets: FieldPaths,
    pub rules: &'static dyn Rules,
}

/// A field by which watchers are told of changes.
pub struct IndexedField {
    pub path: &'static str,
    /// Its value in an object as it is stored.
    pub value: fn(&[u8]) -> Cow<'_, str>,
}

/// Who makes a request.
pub struct Requester<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub groups: &'a [String],
    pub extra: &'a BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

/// The verbs of an ordinary stored resource.
pub const ALL_VERBS: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];

/// The verbs of a proxy subresource.
pub const PROXY_VERBS: &[Verb] = &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update];

pub struct Subresource {
    pub name: &'static str,
    /// The group, version and kind of its body where it differs from the resource's own (`scale`, `binding`, …).
    pub body: Option<(&'static str, &'static str, &'static str)>,
    pub verbs: &'static [Verb],
    /// The parts of the object that a write may change, where the body is the object itself.
    pub changes: Option<FieldPaths>,
    /// The part of the object that a write can own.
    pub owns: Filter,
    /// Whether a write is a new wish of the user's, which moves the generation; a binding, for one, is not.
    pub moves_generation: bool,
}

/// Which changes of an object move `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The kind has no generation.
    None,
    /// Any change outside of metadata and status, counted from the first: a new object has none yet.
    Changes,
    /// Any change outside of metadata and status.
    Spec,
    /// The same, or any change of the labels.
    SpecAndLabels,
    /// Any change outside of metadata: custom resources whose status is a field like any other.
    All,
}

/// A printed column of the kind's table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `date`, …
    pub kind: &'static str,
    pub format: &'static str,
    /// 0 is always shown; higher ones only with `-o wide`.
    pub priority: i32,
    pub description: &'static str,
}

/// What a kind decides for itself. Objects are already decoded, pruned and normalised; `metadata` is checked by the
/// registry. All methods are pure.
pub trait Rules: Send + Sync {
    /// Fills in what the user left out, beyond the defaults of the fact table.
    fn default(&self, _object: &mut Value) {}

    /// Adjusts a new object before validation: clears what only the server may set.
    /// The registry has already dropped `status` when the kind has a status subresource.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Adjusts an update before validation: keeps what this request may not change.
    /// The registry has already carried `status` over when the kind has a status subresource.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Adjusts a write to `status`; the registry has already carried everything but `status` over.
    fn prepare_status_update(&self, _new: &mut Value, _old: &Value) {}

    /// Adjusts a write through another subresource: keeps what it may not change.
    fn prepare_subresource_update(&self, _subresource: &str, _new: &mut Value, _old: &Value) {}

    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Runs in addition to [`Rules::validate`] when the object is new.
    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Runs in addition to [`Rules::validate`] of the new object.
    fn validate_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    fn validate_status_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// A change through a subresource that is a view of the object itself, such as `resize` or `approval`. Runs in
    /// addition to [`Rules::validate`] of the new object.
    fn validate_subresource_update(&self, _subresource: &str, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Texts for `Warning` headers on a create, whether or not the object is accepted.
    fn early_warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Texts for `Warning` headers on a create or update.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// The same for a change; most kinds warn about what is there, changed or not.
    fn warnings_on_update(&self, new: &Value, _old: &Value) -> Vec<String> {
        self.warnings(new)
    }

    /// Whether a change is warned about as a new object is: what has a generation is looked at when that moves.
    fn warns_on_update(&self, new: &Value, old: &Value) -> bool {
        match self.generation() {
            Generation::Spec => new["spec"] != old["spec"],
            _ => true,
        }
    }

    /// Texts for `Warning` headers on a write to the status.
    fn status_warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    fn generation(&self) -> Generation {
        Generation::None
    }

    /// Writes into a new object who makes it, whatever it says itself.
    fn fill_requester(&self, _object: &mut Value, _requester: &Requester<'_>) {}

    /// Writes into conditions when they were written, on a write to the status or another subresource.
    fn stamp_conditions(&self, _new: &mut Value, _old: &Value, _now: &str) {}

    /// Whether items of a list with keys lack theirs, so that nobody can be said to own them.
    fn lacks_list_keys(&self, _object: &Value) -> bool {
        false
    }

    /// Whether a PUT to a name that does not exist creates the object.
    fn create_on_update(&self) -> bool {
        false
    }

    /// Whether a create may bring a status along although the kind has a status subresource.
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// The checks of `metadata.name` beyond "a path segment": `dns1123-subdomain` for most kinds.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        crate::names::dns1123_subdomain(name, prefix)
    }

    /// Whether a `generateName` gets a random end; otherwise it is the name itself.
    fn generates_names(&self) -> bool {
        true
    }

    /// By what objects are sorted in tables, where it is not by their names.
    fn table_order(&self, _object: &Value) -> i64 {
        0
    }

    /// The value of a selectable field; `None` when the kind does not support selecting by it.
    /// `metadata.name` and `metadata.namespace` are handled by the registry.
    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    /// The seconds an object stays with a deletion timestamp before it is removed; `None` removes it at once.
    fn deletion_grace_seconds(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Adjusts an object whose deletion has just been asked for; finalizers added here keep it. `now` is for
    /// conditions.
    fn prepare_deletion(&self, _object: &mut Value, _now: &str) {}

    /// Adjusts an object that stays until its grace period is over and its finalizers are gone.
    fn prepare_termination(&self, _object: &mut Value) {}

    /// What else than `metadata.finalizers` keeps an object whose deletion was asked for.
    fn other_finalizers<'a>(&self, _object: &'a Value) -> &'a [Value] {
        &[]
    }

    /// Whether an object that goes at once is shown as one whose grace period has just ended.
    fn ends_grace_when_removed(&self) -> bool {
        false
    }

    /// Adjusts metadata that is shown without its object.
    fn adjust_partial_metadata(&self, _metadata: &mut Value) {}

    /// The columns after and including NAME; the default table is NAME and CREATED AT.
    fn columns(&self) -> &'static [Column] {
        DEFAULT_COLUMNS
    }

    /// One cell per column. `now` is in seconds since the epoch, for ages.
    fn cells(&self, object: &Value, _now: i64) -> Vec<Value> {
        let metadata = &object["metadata"];
        vec![metadata["name"].clone(), metadata["creationTimestamp"].clone()]
    }
}

/// The rules of a kind that has none of its own.
pub struct Plain;

impl Rules for Plain {}

const DEFAULT_COLUMNS: &[Column] = &[
    Column {
        name: "Name",
        kind: "string",
        format: "name",
        priority: 0,
        description: "Name must be unique within a namespace.",
    },
    Column {
        name: "Created At",
        kind: "date",
        format: "",
        priority: 0,
        description: "When the server stored the object, in RFC 3339 form and UTC.",
    },
];

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }
}

impl Subresource {
    pub const STATUS: Subresource = Subresource::new("status", &[Verb::Get, Verb::Patch, Verb::Update]);
    pub const SCALE: Subresource = Subresource::new("scale", &[Verb::Get, Verb::Patch, Verb::Update])
        .with_body("autoscaling", "v1", "Scale")
        .owning(Filter {
            only: Some(&[&["spec", "replicas"]]),
            without: &[],
        })
        .moving_generation();

    /// A subresource whose body is the resource's own kind.
    pub const fn new(name: &'static str, verbs: &'static [Verb]) -> Subresource {
        Subresource {
            name,
            body: None,
            verbs,
            changes: None,
            owns: Filter {
                only: None,
                without: &[],
            },
            moves_generation: false,
        }
    }

    /// The body is the object itself, of which only these parts may change.
    pub const fn changing(mut self, parts: FieldPaths) -> Subresource {
        self.changes = Some(parts);
        self
    }

    pub const fn owning(mut self, part: Filter) -> Subresource {
        self.owns = part;
        self
    }

    pub const fn moving_generation(mut self) -> Subresource {
        self.moves_generation = true;
        self
    }

    pub const fn with_body(mut self, group: &'static str, version: &'static str, kind: &'static str) -> Subresource {
        self.body = Some((group, version, kind));
        self
    }
}

/// Rows are written as constants: an ordinary resource is one call, the rest is said where it differs.
impl Resource {
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Resource {
        Resource {
            group,
            version,
            kind,
            plural,
            singular,
            short_names: &[],
            categories: &[],
            namespaced: true,
            verbs: ALL_VERBS,
            subresources: &[],
            storage: plural,
            storage_version: None,
            custom: false,
            deprecation: None,
            requires_revision: false,
            returns_deleted: false,
            orphans_dependents: false,
            deletion_warning: None,
            records_grace_period: true,
            time_to_live: None,
            traces_updates: true,
            indexed_field: None,
            converts_field_labels: false,
            allows_unqualified_finalizers: false,
            error_group: group,
            update_resets: &[&["status"]],
            status_resets: &[&["spec"]],
            rules: &Plain,
        }
    }

    pub const fn cluster(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Resource {
        let mut resource = Resource::namespaced(group, version, kind, plural, singular);
        resource.namespaced = false;
        resource
    }

    pub const fn short(mut self, names: &'static [&'static str]) -> Resource {
        self.short_names = names;
        self
    }

    pub const fn in_categories(mut self, categories: &'static [&'static str]) -> Resource {
        self.categories = categories;
        self
    }

    pub const fn with_verbs(mut self, verbs: &'static [Verb]) -> Resource {
        self.verbs = verbs;
        self
    }

    pub const fn with_subresources(mut self, subresources: &'static [Subresource]) -> Resource {
        self.subresources = subresources;
        self
    }

    pub const fn stored_at(mut self, storage: &'static str) -> Resource {
        self.storage = storage;
        self
    }

    pub const fn stored_as(mut self, group: &'static str, version: &'static str) -> Resource {
        self.storage_version = Some((group, version));
        self
    }

    pub const fn not_stored(mut self) -> Resource {
        self.storage = "";
        self
    }

    pub const fn made_by_definition(mut self) -> Resource {
        self.custom = true;
        self
    }

    pub const fn deprecated(mut self, text: &'static str) -> Resource {
        self.deprecation = Some(text);
        self
    }

    pub const fn requiring_revision(mut self) -> Resource {
        self.requires_revision = true;
        self
    }

    pub const fn returning_deleted(mut self) -> Resource {
        self.returns_deleted = true;
        self
    }

    pub const fn orphaning_dependents(mut self) -> Resource {
        self.orphans_dependents = true;
        self
    }

    pub const fn warning_on_deletion(mut self, text: &'static str) -> Resource {
        self.deletion_warning = Some(text);
        self
    }

    pub const fn without_grace_period(mut self) -> Resource {
        self.records_grace_period = false;
        self
    }

    pub const fn kept_for(mut self, time: Duration) -> Resource {
        self.time_to_live = Some(time);
        self
    }

    pub const fn without_update_traces(mut self) -> Resource {
        self.traces_updates = false;
        self
    }

    pub const fn indexed_by(mut self, field: &'static IndexedField) -> Resource {
        self.indexed_field = Some(field);
        self
    }

    pub const fn converting_field_labels(mut self) -> Resource {
        self.converts_field_labels = true;
        self
    }

    pub const fn with_unqualified_finalizers(mut self) -> Resource {
        self.allows_unqualified_finalizers = true;
        self
    }

    pub const fn reporting_errors_in(mut self, group: &'static str) -> Resource {
        self.error_group = group;
        self
    }

    pub const fn resetting_on_update(mut self, fields: FieldPaths) -> Resource {
        self.update_resets = fields;
        self
    }

    pub const fn resetting_on_status_update(mut self, fields: FieldPaths) -> Resource {
        self.status_resets = fields;
        self
    }

    pub const fn with_rules(mut self, rules: &'static dyn Rules) -> Resource {
        self.rules = rules;
        self
    }
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `pods` or `deployments.apps`, as messages name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The URL path of the collection, or of one object when `name` is given.
    pub fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let Some(namespace) = namespace {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }
}
