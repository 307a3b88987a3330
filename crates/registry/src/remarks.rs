//! What admission remarks about the request that a task is working on.
//!
//! Warnings and audit annotations come up deep inside of writes and belong to the answer, whatever becomes of it. They
//! are collected beside the request instead of in every signature on the way.

use std::sync::Arc;

use admission::Remarks;

tokio::task_local! {
    static REMARKS: Arc<Remarks>;
}

/// Runs a request; the remarks made meanwhile by [`current`] are collected in `remarks`.
pub async fn collect<T>(remarks: Arc<Remarks>, request: impl Future<Output = T>) -> T {
    REMARKS.scope(remarks, request).await
}

/// Where remarks about the current request go; those of the server's own writes go nowhere.
pub fn current() -> Arc<Remarks> {
    REMARKS.try_with(Arc::clone).unwrap_or_default()
}

/// Warnings that belong to the answer, whatever becomes of the request.
pub fn warn(warnings: Vec<String>) {
    if !warnings.is_empty() {
        let remarks = current();
        warnings.into_iter().for_each(|warning| remarks.warn(warning));
    }
}
