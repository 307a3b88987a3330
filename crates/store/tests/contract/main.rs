//! The contract of [`store::Store`] as cases that run over every engine, and what only the embedded engine promises:
//! that no acknowledged write is lost, whatever the disk does.

mod cases;
mod durability;
mod engines;
mod etcd_cluster;
mod etcd_server;
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
