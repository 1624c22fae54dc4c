"""How people log in to Airflow: by name and password, kept (hashed) in its database.

Flask-AppBuilder's documentation describes the other ways: OAuth, LDAP, a proxy's header.
"""

from flask_appbuilder.const import AUTH_DB

AUTH_TYPE = AUTH_DB
# At most ten tries a minute from one address.
AUTH_RATE_LIMITED = True
AUTH_RATE_LIMIT = "10 per 60 second"
WTF_CSRF_ENABLED = True
SESSION_COOKIE_SECURE = True
