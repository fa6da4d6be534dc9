"""The pages for people: each file has the routes of one part, rendered here; they read what the API reads."""

from opendataflow.server.pages import actions, login

ROUTERS = (actions.router, login.router)
