-- Everything here can be run again at every start, by several workers at once (under one advisory lock).
CREATE SCHEMA IF NOT EXISTS shop;

CREATE TABLE IF NOT EXISTS shop.countries (
    country text PRIMARY KEY CHECK (country ~ '^[A-Z]{2}$'),
    name    text NOT NULL,
    region  text NOT NULL
);

CREATE TABLE IF NOT EXISTS shop.products (
    slug        text PRIMARY KEY,
    name        text NOT NULL,
    category    text NOT NULL,
    price_cents integer NOT NULL CHECK (price_cents > 0),
    summary     text NOT NULL,
    description text NOT NULL,
    rank        integer NOT NULL
);

CREATE TABLE IF NOT EXISTS shop.users (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email         text NOT NULL UNIQUE CHECK (email = lower(email)),
    name          text NOT NULL,
    password_hash text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now()
);

-- A row is a log-in. The cookie carries the signed session id; only its hash is kept here.
CREATE TABLE IF NOT EXISTS shop.sessions (
    session    bytea PRIMARY KEY,
    user_id    bigint NOT NULL REFERENCES shop.users ON DELETE CASCADE,
    expires_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS sessions_expiry ON shop.sessions (expires_at);

-- `owner` is a session's hash, or a user once somebody has logged in.
CREATE TABLE IF NOT EXISTS shop.cart_lines (
    owner    text NOT NULL,
    slug     text NOT NULL REFERENCES shop.products ON DELETE CASCADE,
    quantity integer NOT NULL CHECK (quantity BETWEEN 1 AND 99),
    added_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, slug)
);

CREATE TABLE IF NOT EXISTS shop.orders (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id     bigint NOT NULL REFERENCES shop.users ON DELETE CASCADE,
    recipient   text NOT NULL,
    address     text NOT NULL,
    country     text NOT NULL REFERENCES shop.countries,
    total_cents integer NOT NULL,
    status      text NOT NULL DEFAULT 'placed' CHECK (status IN ('placed', 'cancelled')),
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS orders_of_user ON shop.orders (user_id, created_at DESC);

CREATE TABLE IF NOT EXISTS shop.order_lines (
    order_id    bigint NOT NULL REFERENCES shop.orders ON DELETE CASCADE,
    slug        text NOT NULL,
    name        text NOT NULL,
    quantity    integer NOT NULL,
    price_cents integer NOT NULL,
    PRIMARY KEY (order_id, slug)
);
