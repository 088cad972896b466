// Package sqlserver connects endpoints to queues that are tables in the SQL server
// that a program already runs: PostgreSQL, through pgx, and Microsoft SQL Server,
// through go-mssqldb.
package sqlserver
