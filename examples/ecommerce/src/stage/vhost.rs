//! A vhost of its own, made and removed by the management API.

use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Url};

use super::url;
use crate::problem::Problem;

pub(super) struct Vhost {
    pub(super) name: String,
    /// `AMQP_URL` with this vhost in place of its own.
    pub(super) amqp_url: String,
    management: Url,
    user: String,
    http: Client,
    made: bool,
}

impl Vhost {
    pub(super) fn plan(name: &str) -> Result<Self, Problem> {
        let mut amqp = url("AMQP_URL")?;
        let user = match amqp.username() {
            "" => "guest".to_owned(),
            user => user.to_owned(),
        };
        amqp.set_path(&format!("/{name}"));
        let http = Client::builder().timeout(Duration::from_secs(10)).build()?;
        let management = url("MANAGEMENT_URL")?;
        Ok(Self {
            name: name.to_owned(),
            amqp_url: amqp.to_string(),
            management,
            user,
            http,
            made: false,
        })
    }

    pub(super) async fn make(&mut self) -> Result<(), Problem> {
        self.made = true;
        self.call(Method::PUT, &format!("vhosts/{}", self.name))
            .send()
            .await?
            .error_for_status()
            .map_err(bare)?;
        let everything = serde_json::json!({ "configure": ".*", "write": ".*", "read": ".*" });
        self.call(Method::PUT, &format!("permissions/{}/{}", self.name, self.user))
            .json(&everything)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(bare)?;
        Ok(())
    }

    pub(super) async fn remove(&mut self) -> Result<(), Problem> {
        if std::mem::take(&mut self.made) {
            let removed = self
                .call(Method::DELETE, &format!("vhosts/{}", self.name))
                .send()
                .await;
            removed
                .and_then(reqwest::Response::error_for_status)
                .map_err(bare)?;
        }
        Ok(())
    }

    pub(super) fn pages(&self) -> (String, String) {
        let mut pages = self.management.clone();
        // Neither call can fail on an http URL, and without them the password would show.
        let _ = pages.set_username("");
        let _ = pages.set_password(None);
        (
            format!("{pages}#/queues?vhost={}", self.name),
            self.management.username().to_owned(),
        )
    }

    fn call(&self, method: Method, path: &str) -> RequestBuilder {
        let mut url = self.management.clone();
        url.set_path(&format!("/api/{path}"));
        self.http.request(method, url)
    }
}

/// The error without its URL, which holds the password.
fn bare(error: reqwest::Error) -> reqwest::Error {
    error.without_url()
}
