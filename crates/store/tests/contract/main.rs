//! The contract of [`store::Store`] as cases that run over every engine, and what only the embedded engine promises:
//! that no acknowledged write is lost, whatever the disk does.

mod api;
mod cases;
mod durability;
mod engines;
mod etcd_cluster;
mod etcd_server;
mod failover;
mod faulty;
mod kit;
mod model;
mod restart;

macro_rules! over {
    ($case:ident $engine:ident) => {
        #[tokio::test]
        async fn $case() {
            if let Some(world) = super::engines::$engine().await {
                super::cases::$case(world).await;
            }
        }
    };
}

/// One test per engine and case.
macro_rules! contract {
    ($($case:ident)*) => {
        mod memory { $(over!($case memory);)* }
        mod embedded { $(over!($case embedded);)* }
        mod forgetful { $(over!($case forgetful);)* }
        mod etcd { $(over!($case etcd);)* }
        mod served { $(over!($case served);)* }
    };
}

contract! {
    a_write_is_visible_as_soon_as_it_is_acknowledged
    a_missing_key_can_be_created_once
    a_write_on_an_outdated_revision_is_refused_with_the_current_state
    all_writes_of_a_transaction_share_one_revision
    one_failed_compare_keeps_every_write_out
    writes_that_change_nothing_make_no_revision
    a_key_cannot_be_written_twice_in_one_transaction
    the_create_revision_lives_from_create_to_delete
    ranges_are_ordered_and_end_with_their_prefix
    a_snapshot_stays_as_it_was
    older_revisions_can_be_read
    a_watch_delivers_every_event_once_and_in_order
    a_watch_waits_for_the_next_event
    a_slow_watch_catches_up
    compaction_forgets_history_but_no_state
    the_future_cannot_be_read
    keys_expire_after_their_time_to_live
    a_later_write_replaces_the_time_to_live
    concurrent_increments_are_all_counted
    large_values_and_odd_keys_survive
    a_closed_store_refuses_everything_and_ends_its_watches
}

macro_rules! over_api {
    ($case:ident $peer:ident) => {
        #[tokio::test]
        async fn $case() {
            if let Some(peer) = crate::api::$peer().await {
                crate::api::$case(peer).await;
            }
        }
    };
}

macro_rules! api {
    ($($case:ident)*) => {
        mod api_of {
            mod etcd { $(over_api!($case etcd);)* }
            mod served { $(over_api!($case served);)* }
        }
    };
}

api! {
    ranges_are_sorted_filtered_and_counted
    what_cannot_be_read_keeps_the_writes_of_its_transaction_out
    no_key_is_written_twice_but_may_be_deleted_twice
    spans_are_compared_as_a_whole
    transactions_inside_a_transaction_are_decided_from_its_beginning
    a_watch_may_begin_in_the_future_and_leave_out_kinds_of_events
    numbers_of_watches_do_not_collide
    a_watch_that_is_too_late_is_told_where_to_begin
    a_lease_takes_its_keys_with_it
    a_lease_lives_as_long_as_it_is_kept_alive
}
