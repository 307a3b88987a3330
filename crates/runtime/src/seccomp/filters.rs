//! Compiled filters, kept for the next process.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use libc::sock_filter;

use super::compile::{CompileError, compile};
use super::{Profile, default};
use crate::spec::{Process, Seccomp};
use crate::{capability, sys};

/// How many filters are kept. A pod's containers rarely have more than two kinds.
const MAX_FILTERS: usize = 8;

const FLAG_LOG: u32 = 1 << 1;
const FLAG_SPEC_ALLOW: u32 = 1 << 2;

/// A filter, ready to be loaded.
pub struct Filter {
    code: Vec<sock_filter>,
    flags: u32,
}

impl Filter {
    pub fn compile(profile: &Profile) -> Result<Self, CompileError> {
        let mut flags = 0;
        for (wanted, flag) in [(profile.log, FLAG_LOG), (profile.allow_speculation, FLAG_SPEC_ALLOW)] {
            flags |= if wanted { flag } else { 0 };
        }
        let code = compile(profile)?;
        Ok(Self { code, flags })
    }

    /// Filters this process and all it becomes. Needs CAP_SYS_ADMIN, or that no program may gain privileges.
    pub fn load(&self) -> io::Result<()> {
        sys::load_seccomp_filter(&self.code, self.flags)
    }
}

/// The filters that a supervisor has compiled, by profile and capabilities.
#[derive(Default)]
pub struct Filters {
    compiled: HashMap<(Seccomp, u64), Rc<Filter>>,
}

impl Filters {
    /// With the filters that most processes have, for all who are forked from this process.
    pub fn with_default() -> Self {
        let mut filters = Self::default();
        // Those without any capability come next.
        for held in [capability::held(&[], &[]).unwrap_or(0), 0] {
            // Should one not compile, the first container that wants it says so.
            let _ = filters.compiled_for(&Seccomp::RuntimeDefault, held);
        }
        filters
    }

    /// The filter of a process; none for one that is not confined.
    pub fn filter_for(&mut self, process: &Process) -> Result<Option<Rc<Filter>>, CompileError> {
        match &process.seccomp {
            Seccomp::Unconfined => Ok(None),
            seccomp => self.compiled_for(seccomp, process.capabilities.held).map(Some),
        }
    }

    fn compiled_for(&mut self, seccomp: &Seccomp, held: u64) -> Result<Rc<Filter>, CompileError> {
        let key = (seccomp.clone(), held);
        if let Some(known) = self.compiled.get(&key) {
            return Ok(known.clone());
        }
        let of_capabilities;
        let profile = match seccomp {
            Seccomp::Localhost(profile) => profile,
            _ => {
                of_capabilities = default::profile(held);
                &of_capabilities
            }
        };
        let filter = Rc::new(Filter::compile(profile)?);
        if self.compiled.len() >= MAX_FILTERS {
            self.compiled.clear();
        }
        self.compiled.insert(key, filter.clone());
        Ok(filter)
    }
}
