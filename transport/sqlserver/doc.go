// Package sqlserver connects endpoints to queues that are tables in the SQL server
// that a program already runs: PostgreSQL, through pgx or database/sql, and Microsoft
// SQL Server, through go-mssqldb. The latter is experimental, because it was never run
// against a server: see [Config.Experimental]. A program that uses it also imports package
// microsoft, so that others do not depend on go-mssqldb.
//
// An application developer needs [Open] or [New], in a handler [Tx] (or [SQLTx]) to
// write in the transaction that receives and sends, outside of handlers [WithTx] (or
// [WithSQLTx]) to send in a transaction of their own, and [DDL] where tables are made by
// somebody else. docs/transports/sqlserver.md is the guide, for operators too.
package sqlserver
