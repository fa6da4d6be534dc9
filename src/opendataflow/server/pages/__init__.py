"""The pages for people: each file has the routes of one part, rendered here; they read what the API reads."""

from opendataflow.server.pages import account, actions, login, sources

ROUTERS = (actions.router, account.router, login.router, sources.router)
