// Package postgres has the dialect of PostgreSQL: the statements on its tables, and the
// meaning of its errors.
package postgres
