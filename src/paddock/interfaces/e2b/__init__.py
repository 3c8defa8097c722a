"""E2B's API, so that its SDKs work against Paddock: a translation onto the services."""
