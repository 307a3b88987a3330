//! Volumes, which attackers share with the kubelet.

mod disk;
mod projected;
mod races;
mod subpath;

use crate::cases::Case;

pub const CASES: &[Case] = &[
    projected::LINK_IN_PLACE_OF_DATA,
    subpath::RESTART_TRUNCATES,
    subpath::LINK_AS_SUBPATH,
    races::SUBPATH_RACE,
    races::DESTINATION_RACE,
    disk::SIZE_LIMIT,
    disk::LOCAL_USERS,
];
