//! A message to a webhook, and whether it was taken.
//!
//! May import: `render` (formats), reqwest. The URL is a secret: whoever has it can post. It stands in no error, and neither
//! does what the other side answered but for numbers. Redirects are not followed, since they could lead a secret elsewhere.

use std::time::Duration;

use reqwest::{Client, Response, StatusCode, redirect::Policy};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::render::Format;

/// Longest answer that is read, in bytes.
const MAX_ANSWER: usize = 4 * 1024;

/// Why a message was not taken. Holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// No answer, or one that says "not now".
    #[error("{0}")]
    Again(String),
    /// It will never be taken: a wrong URL, or a webhook that refuses it.
    #[error("{0}")]
    Never(String),
}

/// A webhook.
#[derive(Clone)]
pub struct Webhook {
    client: Client,
    url: SecretString,
    format: Format,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// The webhook at `url`; nothing is sent yet. The error is why there can be no client at all.
    pub fn new(url: &SecretString, format: Format, timeout: Duration) -> Result<Self, String> {
        let client = Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout)
            .redirect(Policy::none())
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            // An hour lies between two messages.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|why| why.without_url().to_string())?;
        Ok(Self {
            client,
            url: url.clone(),
            format,
        })
    }

    /// In which shape it takes messages.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Posts `body` once.
    pub async fn post(&self, body: &Value) -> Result<(), PostError> {
        let sent = self.client.post(self.url.expose_secret()).json(body).send().await;
        let response = sent.map_err(|why| unanswered(&why))?;
        let status = response.status();
        let answer = beginning(response).await.map_err(|why| unanswered(&why))?;
        judge(self.format, status, &answer)
    }
}

fn unanswered(error: &reqwest::Error) -> PostError {
    if error.is_builder() {
        return PostError::Never("the URL of the webhook can't be used".to_owned());
    }
    let what = if error.is_timeout() {
        "the webhook did not answer in time"
    } else if error.is_connect() {
        "the webhook can't be reached"
    } else {
        "the connection to the webhook broke"
    };
    PostError::Again(what.to_owned())
}

async fn beginning(mut response: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = MAX_ANSWER - answer.len();
        answer.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if answer.len() == MAX_ANSWER {
            break;
        }
    }
    Ok(answer)
}

/// Whether the answer says that the message was taken. Feishu and DingTalk say it in the body, under the status 200.
fn judge(format: Format, status: StatusCode, answer: &[u8]) -> Result<(), PostError> {
    let again = status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS | StatusCode::TOO_EARLY
        );
    if again {
        return Err(PostError::Again(format!(
            "the webhook answered {}",
            status.as_u16()
        )));
    }
    if !status.is_success() {
        return Err(PostError::Never(format!(
            "the webhook answered {}",
            status.as_u16()
        )));
    }
    let (names, busy): (&[&str], &[i64]) = match format {
        Format::Plain | Format::Slack => return Ok(()),
        // Too often, by two generations of its API.
        Format::Feishu => (&["code", "StatusCode"], &[9_499, 11_232]),
        // The system is busy; too often, by two generations of its API.
        Format::DingTalk => (&["errcode"], &[-1, 130_101, 410_100]),
    };
    let json: Value = serde_json::from_slice(answer).unwrap_or_default();
    match names.iter().find_map(|name| json.get(*name)?.as_i64()) {
        Some(0) => Ok(()),
        Some(code) if busy.contains(&code) => Err(PostError::Again(format!(
            "{} answered with code {code}",
            format.as_str()
        ))),
        Some(code) => Err(PostError::Never(format!(
            "{} answered with code {code}",
            format.as_str()
        ))),
        None => Err(PostError::Never(format!(
            "what answered is not {}",
            format.as_str()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_its_service_means_it() {
        use Format::{DingTalk, Feishu, Plain, Slack};
        for (format, status, answer, taken) in [
            (Plain, 204, "", "taken"),
            (Slack, 200, "ok", "taken"),
            (Slack, 404, "no_service", "never"),
            (Plain, 302, "", "never"),
            (Plain, 429, "", "again"),
            (Slack, 503, "", "again"),
            (Feishu, 200, r#"{"code":0,"msg":"success"}"#, "taken"),
            (
                Feishu,
                200,
                r#"{"StatusCode":0,"StatusMessage":"success"}"#,
                "taken",
            ),
            (
                Feishu,
                200,
                r#"{"code":19024,"msg":"Key Words Not Found"}"#,
                "never",
            ),
            (
                Feishu,
                200,
                r#"{"code":11232,"msg":"frequency limited"}"#,
                "again",
            ),
            (Feishu, 200, "<html>", "never"),
            (DingTalk, 200, r#"{"errcode":0,"errmsg":"ok"}"#, "taken"),
            (
                DingTalk,
                200,
                r#"{"errcode":310000,"errmsg":"keywords not in content"}"#,
                "never",
            ),
            (
                DingTalk,
                200,
                r#"{"errcode":130101,"errmsg":"send too fast"}"#,
                "again",
            ),
        ] {
            let judged = match judge(format, StatusCode::from_u16(status).unwrap(), answer.as_bytes()) {
                Ok(()) => "taken",
                Err(PostError::Again(_)) => "again",
                Err(PostError::Never(_)) => "never",
            };
            assert_eq!(judged, taken, "{format:?} {status} {answer}");
        }
    }
}
