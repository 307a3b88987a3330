//! What can run out, under upstream's names.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    MemoryAvailable,
    NodefsAvailable,
    NodefsInodesFree,
    ImagefsAvailable,
    ImagefsInodesFree,
    PidAvailable,
}

const NAMES: [(Signal, &str); 6] = [
    (Signal::MemoryAvailable, "memory.available"),
    (Signal::NodefsAvailable, "nodefs.available"),
    (Signal::NodefsInodesFree, "nodefs.inodesFree"),
    (Signal::ImagefsAvailable, "imagefs.available"),
    (Signal::ImagefsInodesFree, "imagefs.inodesFree"),
    (Signal::PidAvailable, "pid.available"),
];

/// Which of the node's conditions says that something has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pressure {
    Memory,
    Disk,
    Pid,
}

impl Pressure {
    /// The type of the node's condition.
    pub fn condition(self) -> &'static str {
        match self {
            Pressure::Memory => "MemoryPressure",
            Pressure::Disk => "DiskPressure",
            Pressure::Pid => "PIDPressure",
        }
    }
}

impl Signal {
    pub fn parse(name: &str) -> Option<Signal> {
        let row = NAMES.iter().find(|(_, known)| *known == name);
        row.map(|(signal, _)| *signal)
    }

    pub fn name(self) -> &'static str {
        let row = NAMES.iter().find(|(signal, _)| *signal == self);
        row.map_or("", |(_, name)| name)
    }

    pub fn pressure(self) -> Pressure {
        match self {
            Signal::MemoryAvailable => Pressure::Memory,
            Signal::PidAvailable => Pressure::Pid,
            _ => Pressure::Disk,
        }
    }

    /// What is counted: bytes are shown with a unit, the rest is not.
    pub fn is_bytes(self) -> bool {
        use Signal::{ImagefsAvailable, MemoryAvailable, NodefsAvailable};
        matches!(self, MemoryAvailable | NodefsAvailable | ImagefsAvailable)
    }

    /// The resource of a container whose use counts when pods are compared, as upstream's messages name it.
    pub fn resource(self) -> &'static str {
        match self {
            Signal::MemoryAvailable => "memory",
            Signal::NodefsAvailable | Signal::ImagefsAvailable => "ephemeral-storage",
            Signal::NodefsInodesFree | Signal::ImagefsInodesFree => "inodes",
            Signal::PidAvailable => "pids",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
