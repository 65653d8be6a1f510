//! A vhost of a test's own.

use uuid::Uuid;

use crate::{Services, management::Management, services, sweep};

/// A vhost that is deleted by [`close`](Self::close), or when dropped by a failing test.
#[derive(Debug)]
pub struct Vhost {
    name: String,
    amqp_url: String,
    management: Management,
    open: bool,
}

impl Vhost {
    /// Creates a vhost with a random name, in which the services' user may do everything.
    pub async fn create() -> Self {
        let services = services();
        sweep::vhosts(&services).await;
        Self::create_on(&services).await
    }

    /// Does the same on other services than those of the test run, such as [`PrivateServices`](crate::PrivateServices).
    pub async fn create_on(services: &Services) -> Self {
        let name = format!("t-{}", Uuid::now_v7());
        let management = Management::new(&services.management, &name);
        let (scheme, rest) = services.amqp.split_once("://").expect("AMQP_URL is an AMQP URI");
        let authority = rest.split('/').next().unwrap_or(rest);
        let user = authority.split_once('@').map_or("guest", |(userinfo, _)| {
            userinfo.split_once(':').map_or(userinfo, |(user, _)| user)
        });
        management.create_vhost(user).await;
        let amqp_url = format!("{scheme}://{authority}/{name}");
        Self {
            name,
            amqp_url,
            management,
            open: true,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// AMQP URI with credentials.
    pub fn amqp_url(&self) -> &str {
        &self.amqp_url
    }

    /// AMQP URI for another user.
    pub fn amqp_url_as(&self, user: &str, password: &str) -> String {
        let (scheme, rest) = self.amqp_url.split_once("://").unwrap_or_default();
        let host = rest.split_once('@').map_or(rest, |(_, host)| host);
        format!("{scheme}://{user}:{password}@{host}")
    }

    /// The management API for this vhost.
    pub fn management(&self) -> &Management {
        &self.management
    }

    /// Deletes the vhost with all that is in it.
    pub async fn close(mut self) {
        self.open = false;
        self.management.delete_vhost().await;
    }
}

impl Drop for Vhost {
    fn drop(&mut self) {
        if self.open {
            let management = self.management.afresh();
            crate::database::block_on(async move { management.delete_vhost().await });
        }
    }
}
