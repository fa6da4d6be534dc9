-- What a warehouse would have already: a database, a user who may only read, and a table with three days of orders.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
CREATE ROLE dataflow_example LOGIN PASSWORD 'only-for-this-example';
CREATE DATABASE dataflow_example;
\connect dataflow_example
CREATE SCHEMA shop;
CREATE TABLE shop.orders (
    id integer PRIMARY KEY,
    ordered_on date NOT NULL,
    customer text NOT NULL,
    amount numeric(8, 2) NOT NULL
);
INSERT INTO shop.orders VALUES
    (1001, '2025-11-01', 'Ada', 12.50),
    (1002, '2025-11-01', 'Ben', 7.25),
    (1003, '2025-11-02', 'Cleo', 30.00),
    (1004, '2025-11-02', 'Ada "the first", Countess', 3.10),
    (1005, '2025-11-02', 'Dora', 18.00),
    (1006, '2025-11-03', 'Ben', 5.40);
GRANT USAGE ON SCHEMA shop TO dataflow_example;
GRANT SELECT ON shop.orders TO dataflow_example;
