//! RabbitMQ's management API: what AMQP can't tell or do. One vhost per client.
//!
//! Only commands that a person runs use it; publishing and consuming never depend on it. Every call has a limit in
//! time and in size. Texts of errors hold no credentials.
//!
//! May import: the topology's values, reqwest.

pub mod clock;
mod read;

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;
use url::Url;

use crate::topology::Policy;

/// An answer that takes longer is spoken of.
const SLOW: Duration = Duration::from_secs(5);
/// Longest answer in bytes: a list of 5,000 queues is a few million.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// Longest text of a refusal that is repeated.
const MAX_REASON_CHARS: usize = 500;

/// Why a call of the management API failed.
#[derive(Debug, thiserror::Error)]
pub enum ManagementError {
    /// No answer, or one that says the broker can't now: the same call may succeed later.
    #[error("the management API did not answer {doing}: {reason}")]
    Unavailable {
        /// The call.
        doing: String,
        /// What happened.
        reason: String,
    },
    /// The user may not do this.
    #[error("the management API refused {doing} ({status}): {reason}")]
    Denied {
        /// The call.
        doing: String,
        /// 401 or 403.
        status: u16,
        /// In the broker's words.
        reason: String,
    },
    /// What was named doesn't exist.
    #[error("the management API does not know what {doing} names")]
    NotFound {
        /// The call.
        doing: String,
    },
    /// What answers there is no management API.
    #[error("what answers {doing} is not RabbitMQ's management API: {reason}")]
    NoApi {
        /// The call.
        doing: String,
        /// What it answered.
        reason: String,
    },
    /// Anything else the broker refused; the same call fails again.
    #[error("the management API refused {doing} ({status}): {reason}")]
    Refused {
        /// The call.
        doing: String,
        /// The HTTP status.
        status: u16,
        /// In the broker's words.
        reason: String,
    },
}

/// How a queue is filled and read, as the broker counted at its last tick: up to `quorum_tick_interval` (5 s unless
/// configured) old for a quorum queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct QueueCounts {
    /// Ready, unacknowledged and on their way to a dead-letter exchange.
    pub messages: u64,
    /// Ready.
    pub messages_ready: u64,
    /// Delivered and not yet acknowledged.
    pub messages_unacknowledged: u64,
    /// Consumers.
    pub consumers: u64,
}

/// Called with a call that is slow.
type Slow = dyn Fn(&str) + Send + Sync;

/// A client of the management API for one vhost; cheap to clone.
#[derive(Clone)]
pub struct Management {
    client: Client,
    /// Without user and password, and without a slash at the end.
    base: String,
    user: String,
    password: SecretString,
    vhost: String,
    /// Told of a call that is slow.
    slow: Option<Arc<Slow>>,
}

impl std::fmt::Debug for Management {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Management")
            .field("base", &self.base)
            .field("vhost", &self.vhost)
            .finish_non_exhaustive()
    }
}

impl Management {
    /// A client of the API at `url` (`http://USER:PASSWORD@HOST:15672`) for `vhost`. `timeout` is the longest wait
    /// for one answer.
    ///
    /// # Errors
    /// [`ManagementError::Refused`] if `url` is none, or the system's certificates can't be read.
    pub fn new(url: &SecretString, vhost: &str, timeout: Duration) -> Result<Self, ManagementError> {
        let refused = |reason: String| ManagementError::Refused {
            doing: "to connect".to_owned(),
            status: 0,
            reason,
        };
        let mut parsed = Url::parse(url.expose_secret()).map_err(|why| refused(why.to_string()))?;
        let decoded = |text: &str| {
            let pairs = format!("x={}", text.replace('+', "%2B"));
            url::form_urlencoded::parse(pairs.as_bytes())
                .next()
                .map(|(_, value)| value.into_owned())
                .unwrap_or_default()
        };
        let user = decoded(parsed.username());
        let password = decoded(parsed.password().unwrap_or_default());
        // Neither can fail on a URL with a host, which http and https always have.
        let _ = parsed.set_username("");
        let _ = parsed.set_password(None);
        let client = Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout.min(Duration::from_secs(10)))
            // A busy broker closes kept connections just as they are used again.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|why| refused(why.to_string()))?;
        Ok(Self {
            client,
            base: parsed.as_str().trim_end_matches('/').to_owned(),
            user,
            password: password.into(),
            vhost: vhost.to_owned(),
            slow: None,
        })
    }

    /// The same client, which calls `slow` with the call (`GET overview`) when its answer takes longer than 5 s; once for each
    /// call.
    #[must_use]
    pub fn telling(self, slow: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            slow: Some(Arc::new(slow)),
            ..self
        }
    }

    /// The vhost it speaks of.
    pub fn vhost(&self) -> &str {
        &self.vhost
    }

    /// The user it acts as.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The same broker and user, another vhost.
    pub fn in_vhost(&self, vhost: &str) -> Self {
        Self {
            vhost: vhost.to_owned(),
            ..self.clone()
        }
    }

    /// Counts of one queue, and none if it doesn't exist.
    pub async fn counts(&self, queue: &str) -> Result<Option<QueueCounts>, ManagementError> {
        match self.get(&format!("queues/{}/{}", self.v(), encode(queue))).await {
            Ok(counts) => Ok(Some(counts)),
            Err(ManagementError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Messages of every queue: of a classic queue as it counts now, of others as at their last tick.
    pub async fn messages(&self) -> Result<HashMap<String, u64>, ManagementError> {
        #[derive(serde::Deserialize)]
        struct Row {
            name: String,
            #[serde(default)]
            messages: u64,
        }
        let path = format!("queues/{}?disable_stats=true&enable_queue_totals=true", self.v());
        let rows: Vec<Row> = self.get(&path).await?;
        Ok(rows.into_iter().map(|row| (row.name, row.messages)).collect())
    }

    /// Sets a policy, new or not.
    pub async fn set_policy(&self, policy: &Policy) -> Result<(), ManagementError> {
        let definition: serde_json::Map<_, _> = policy
            .definition
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.to_json()))
            .collect();
        let body = json!({
            "pattern": policy.pattern,
            "apply-to": policy.apply_to,
            "priority": policy.priority,
            "definition": definition,
        });
        self.put(&format!("policies/{}/{}", self.v(), encode(&policy.name)), &body)
            .await
    }

    /// Deletes a policy; one that is gone already is as good.
    pub async fn delete_policy(&self, name: &str) -> Result<(), ManagementError> {
        self.delete(&format!("policies/{}/{}", self.v(), encode(name)))
            .await
    }

    /// GET `/api/<path>`.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ManagementError> {
        let doing = format!("GET {path}");
        let body = self.answer(&doing, self.request(Method::GET, path)).await?;
        // By way of a value, because 4.0 names `state` twice of a queue that is just being deleted.
        let value = serde_json::from_slice::<Value>(&body).and_then(serde_json::from_value);
        value.map_err(|why| ManagementError::NoApi {
            reason: format!("an answer of another shape than known ({why})"),
            doing,
        })
    }

    /// PUT `/api/<path>`.
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<(), ManagementError> {
        let request = self.request(Method::PUT, path).json(body);
        self.answer(&format!("PUT {path}"), request).await.map(drop)
    }

    /// POST `/api/<path>`.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Vec<u8>, ManagementError> {
        let request = self.request(Method::POST, path).json(body);
        self.answer(&format!("POST {path}"), request).await
    }

    /// DELETE `/api/<path>`; what is gone already is as good as deleted.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), ManagementError> {
        match self
            .answer(&format!("DELETE {path}"), self.request(Method::DELETE, path))
            .await
        {
            Ok(_) | Err(ManagementError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The vhost as part of a path.
    pub(crate) fn v(&self) -> String {
        encode(&self.vhost)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, format!("{}/api/{path}", self.base))
            .basic_auth(&self.user, Some(self.password.expose_secret()))
    }

    async fn answer(&self, doing: &str, request: RequestBuilder) -> Result<Vec<u8>, ManagementError> {
        let mut answered = pin!(answered(doing, request));
        if let Some(slow) = &self.slow {
            match timeout(SLOW, &mut answered).await {
                Ok(answer) => return answer,
                Err(_) => slow(doing),
            }
        }
        answered.await
    }
}

async fn answered(doing: &str, request: RequestBuilder) -> Result<Vec<u8>, ManagementError> {
    let unavailable = |why: reqwest::Error| ManagementError::Unavailable {
        doing: doing.to_owned(),
        reason: reason(&why),
    };
    let response = request.send().await.map_err(unavailable)?;
    let status = response.status();
    let body = body(response, doing).await?;
    if status.is_success() {
        return Ok(body);
    }
    let (doing, reason) = (doing.to_owned(), broker_words(&body));
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ManagementError::Denied {
            doing,
            status: status.as_u16(),
            reason,
        },
        StatusCode::NOT_FOUND => ManagementError::NotFound { doing },
        _ if status.is_server_error() => ManagementError::Unavailable {
            doing,
            reason: format!("{status}: {reason}"),
        },
        _ => ManagementError::Refused {
            doing,
            status: status.as_u16(),
            reason,
        },
    })
}

async fn body(mut response: Response, doing: &str) -> Result<Vec<u8>, ManagementError> {
    let mut body = Vec::new();
    let broken = |why: reqwest::Error| ManagementError::Unavailable {
        doing: doing.to_owned(),
        reason: reason(&why),
    };
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(ManagementError::Refused {
                doing: doing.to_owned(),
                status: 200,
                reason: format!("an answer of more than {MAX_ANSWER_BYTES} bytes"),
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// What happened, down to the cause, without the URL: it may hold what nobody should read.
fn reason(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "no answer in time".to_owned()
    } else if error.is_connect() {
        "no connection".to_owned()
    } else {
        "the connection broke".to_owned()
    };
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if inner.source().is_none() {
            text = format!("{text}: {inner}");
        }
        cause = inner.source();
    }
    text
}

/// The `reason` of the broker's JSON, or the body as text, cut.
fn broker_words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let words = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|value| value["reason"].as_str().map(str::to_owned))
        .unwrap_or_else(|| text.trim().to_owned());
    words.chars().take(MAX_REASON_CHARS).collect()
}

/// Percent-encodes a name for a path.
pub(crate) fn encode(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    name.bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}
