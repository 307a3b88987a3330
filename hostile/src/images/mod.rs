//! Images of attackers.

mod access;
mod digests;
mod layers;
mod pulls;

use crate::cases::Case;

pub const CASES: &[Case] = &[
    digests::DIFF_ID_AS_PATH,
    layers::ENDLESS_RECORDS,
    layers::UNPACKED_OUTSIDE,
    pulls::FALSE_DIGESTS,
    pulls::ENDLESS_BLOB,
    access::PRIVATE_IMAGE,
];
