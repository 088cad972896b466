// Package sqlserver connects endpoints to queues that are tables in the SQL server that a
// program already runs: PostgreSQL, through pgx or database/sql, and Microsoft SQL
// Server, through go-mssqldb. The latter is experimental, because it was never run
// against a server: see [Config.Experimental]. A program that uses it also imports
// package microsoft, so that other programs do not depend on go-mssqldb.
//
// An application developer needs [Open] or [New], in a handler [Tx] (or [SQLTx]) to write
// in the transaction that receives and sends, outside of handlers [WithTx] (or
// [WithSQLTx]) to send in the program's own transaction, and [DDL] if another role
// creates the tables. docs/transports/sqlserver.md is the guide, for operators too.
package sqlserver
