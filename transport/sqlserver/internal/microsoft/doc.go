// Package microsoft has the dialect of Microsoft SQL Server and Azure SQL: the statements on
// its tables, and the meaning of its errors. No client library is imported: the public
// package of the same name registers one in package microsoftdriver.
package microsoft
