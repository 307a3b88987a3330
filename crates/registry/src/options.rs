//! What a write may do, on whose behalf, and how strictly its body was read.

use std::sync::Arc;

use auth::User;

/// What happens to fields that are unknown or given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Options of a create, update or patch.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    pub user: Arc<User>,
    pub dry_run: bool,
    pub validation: FieldValidation,
    pub tracking: Tracking,
    /// Admission has seen the request in a form of its own, and is not asked about what it comes to.
    pub admitted: bool,
    /// When the request arrived, in the unit of marks.
    pub received_us: u64,
}

/// How the owners of the written fields are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// This manager owns what it changed.
    By(String),
    /// The written object already says who owns what.
    Done,
    /// The server's own writes change no owner.
    Off,
}

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything but `status`, where the kind has that subresource.
    Main,
    Status,
    /// A subresource that changes what its handler computed, without the rules of an ordinary update.
    Subresource(&'static str),
}

impl Scope {
    pub fn subresource(self) -> &'static str {
        match self {
            Scope::Main => "",
            Scope::Status => "status",
            Scope::Subresource(name) => name,
        }
    }
}

impl WriteOptions {
    /// The server's own writes: nothing is ignored.
    pub fn own() -> WriteOptions {
        WriteOptions::internal(Arc::new(User::system("system:apiserver", &["system:masters"])))
    }

    /// Writes of one of the server's controllers, which own what they write as upstream's do.
    pub fn of_controller(manager: &str) -> WriteOptions {
        WriteOptions {
            tracking: Tracking::By(manager.to_owned()),
            ..WriteOptions::own()
        }
    }

    /// A write that the server makes on behalf of somebody.
    pub fn internal(user: Arc<User>) -> WriteOptions {
        WriteOptions {
            user,
            dry_run: false,
            validation: FieldValidation::Strict,
            tracking: Tracking::Off,
            admitted: false,
            received_us: trace::now_us(),
        }
    }

    /// The same for what follows from a request that admission has seen.
    pub fn after_admission(&self) -> WriteOptions {
        WriteOptions {
            admitted: true,
            ..self.clone()
        }
    }

    /// The manager that writes.
    pub fn manager(&self) -> &str {
        match &self.tracking {
            Tracking::By(manager) => manager,
            Tracking::Done | Tracking::Off => "",
        }
    }
}
