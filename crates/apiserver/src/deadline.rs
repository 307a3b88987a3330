//! How long a request may take: what its client allows by `?timeout=`, and at most a minute.

use std::time::Duration;

use api::{Error, Reason};
use schema::parse_duration;

use crate::request::{Query, RequestInfo};

/// Upstream's default of `--request-timeout`.
const LONGEST: Duration = Duration::from_secs(60);

/// None for what may go on for as long as it likes.
pub fn of_request(info: &RequestInfo, query: &Query, is_long_running: bool) -> Result<Option<Duration>, Error> {
    if is_long_running || info.path.starts_with("/debug/") {
        return Ok(None);
    }
    let asked = match query.text("timeout") {
        None => 0,
        Some(text) => parse_duration(text)
            .map_err(|error| Error::bad_request(format!("invalid timeout specified in the request URL - {error}")))?,
    };
    // Nothing and less than nothing mean that the client has no wish.
    let asked = u64::try_from(asked).ok().filter(|asked| *asked > 0);
    let asked = asked.map_or(LONGEST, Duration::from_nanos);
    Ok(Some(asked.min(LONGEST)))
}

/// Gives an answer up that does not come in time.
pub async fn within<T>(limit: Option<Duration>, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let Some(limit) = limit else {
        return answer.await;
    };
    let late = "Timeout: request did not complete within the allotted timeout";
    let answered = tokio::time::timeout(limit, answer).await;
    answered.unwrap_or_else(|_| Err(Error::new(Reason::Timeout, late)))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn limit(path: &str, query: &str) -> Result<Option<Duration>, String> {
        let query = Query::parse(query);
        let info = RequestInfo::parse(&Method::GET, path, &query).unwrap();
        of_request(&info, &query, info.verb == "watch").map_err(|error| error.message)
    }

    #[test]
    fn clients_allow_less_than_the_server_and_never_more() {
        let pods = "/api/v1/pods";
        assert_eq!(limit(pods, ""), Ok(Some(LONGEST)));
        assert_eq!(limit(pods, "timeout=1m30s"), Ok(Some(LONGEST)));
        assert_eq!(limit(pods, "timeout=1.5s"), Ok(Some(Duration::from_millis(1500))));
        assert_eq!(limit(pods, "timeout=0s"), Ok(Some(LONGEST)));
        assert_eq!(limit(pods, "timeout=-1s"), Ok(Some(LONGEST)));
        assert_eq!(limit(pods, "timeout=bad&watch=1"), Ok(None));
        assert_eq!(
            limit(pods, "timeout=invalid"),
            Err(r#"invalid timeout specified in the request URL - time: invalid duration "invalid""#.to_owned())
        );
    }

    #[tokio::test]
    async fn what_takes_too_long_is_given_up() {
        let never = std::future::pending::<Result<(), Error>>();
        let error = within(Some(Duration::from_millis(1)), never).await.unwrap_err();
        assert_eq!((error.code(), error.reason), (504, Reason::Timeout));
    }
}
