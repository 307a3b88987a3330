//! Every bound and interval of the kubelet, in one place.

use std::time::Duration;

/// Sandboxes and containers being created or started at once; more only makes each of them slower.
pub const STARTS_AT_ONCE: usize = 16;
/// Image pulls under way at once.
pub const PULLS_AT_ONCE: usize = 5;
/// Pod status writes under way at once.
pub const STATUS_WRITES_AT_ONCE: usize = 16;
/// Messages waiting for one pod's worker. A worker only ever computes between messages, so this is not reached in
/// ordinary life; a sender then waits.
pub const WORKER_MAILBOX: usize = 128;

/// The first wait before a crashed container is started again, after one restart without any.
pub const CRASH_BACKOFF: Duration = Duration::from_secs(10);
pub const CRASH_BACKOFF_MAX: Duration = Duration::from_secs(300);
/// The first wait after an image could not be pulled.
pub const PULL_BACKOFF: Duration = Duration::from_secs(10);
pub const PULL_BACKOFF_MAX: Duration = Duration::from_secs(300);
/// How long a failed pull shows as `ErrImagePull` before it shows as `ImagePullBackOff`.
pub const PULL_ERROR_SHOWN: Duration = Duration::from_secs(1);
/// The first wait after volumes could not be mounted, a sandbox not created or a container not configured.
pub const RETRY: Duration = Duration::from_millis(500);
pub const RETRY_MAX: Duration = Duration::from_secs(30);

/// What a container is given to end at least after its preStop hook has used up the grace period.
pub const MINIMUM_GRACE: Duration = Duration::from_secs(2);
/// How often to list what a runtime without events runs.
pub const RELIST: Duration = Duration::from_secs(1);
/// How often to list what a runtime with events runs, should an event have been lost.
pub const RELIST_WITH_EVENTS: Duration = Duration::from_secs(60);
/// How often volumes that follow other objects are brought up to date.
pub const VOLUME_REFRESH: Duration = Duration::from_secs(60);

/// Bytes of a termination message that are kept.
pub const TERMINATION_MESSAGE_BYTES: usize = 4096;
/// Bytes and lines of a log that stand in for a termination message.
pub const LOG_MESSAGE_BYTES: usize = 2048;
pub const LOG_MESSAGE_LINES: usize = 80;
/// Bytes of a probe's answer that are kept for its message.
pub const PROBE_OUTPUT_BYTES: usize = 10 * 1024;
/// Characters of a container's failure that fit into a message.
pub const HOOK_OUTPUT_BYTES: usize = 4096;

/// How often to look what pods with limits have written to the disk; less often where looking takes long.
pub const LOCAL_STORAGE_CHECK: Duration = Duration::from_secs(5);
/// How often to look whether an eviction threshold is met.
pub const EVICTION_CHECK: Duration = Duration::from_secs(10);
/// How long a node counts as under pressure after what was short is there again.
pub const PRESSURE_TRANSITION: Duration = Duration::from_secs(300);
/// What containers of an evicted pod are given to end.
pub const EVICTION_GRACE: Duration = Duration::from_secs(1);
/// How often unused images are looked for.
pub const IMAGE_GC: Duration = Duration::from_secs(300);
/// Images younger than this are not removed.
pub const IMAGE_MINIMUM_AGE: Duration = Duration::from_secs(120);
/// How often the sizes of logs are looked at. A container that floods its log writes tens of megabytes in a second.
pub const LOG_CHECK: Duration = Duration::from_millis(250);
/// The same while one does.
pub const LOG_CHECK_FLOODED: Duration = Duration::from_millis(50);
/// How often the runtime is asked which containers there are, for those that this kubelet did not start.
pub const LOG_RELIST: Duration = Duration::from_secs(10);

pub const LEASE_SECONDS: i64 = 40;
pub const LEASE_RENEWAL: Duration = Duration::from_secs(10);
pub const NODE_STATUS_CHECK: Duration = Duration::from_secs(10);
/// How often the node's status is written even though nothing changed.
pub const NODE_STATUS_REPORT: Duration = Duration::from_secs(300);
/// Images named in the node's status.
pub const NODE_STATUS_IMAGES: usize = 50;
