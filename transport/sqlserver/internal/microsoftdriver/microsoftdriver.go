// Package microsoftdriver lets package sqlserver use the client library of Microsoft SQL Server
// without importing it: programs that use PostgreSQL do not depend on it. Package microsoft
// imports the library and registers it here.
package microsoftdriver

import (
	"crypto/tls"
	"database/sql/driver"
)

// Driver is the part of the client library that package sqlserver needs. It is safe for
// concurrent use.
type Driver interface {
	// Parse parses the URL of a server, without contacting it. Its error may quote
	// secrets.
	Parse(url string) (*Server, error)

	// Text returns a value for a parameter that is declared as nvarchar(max) for any
	// length.
	Text(text string) any

	// Errors returns the errors that the server reported for a statement, from first to
	// last, or nil if err is not from the server.
	Errors(err error) []Error

	// Severed reports whether err says that the server has ended the connection.
	Severed(err error) bool
}

// Server is the server and the database that a URL names.
type Server struct {
	Host      string
	Port      int // 0: the URL has no port
	Database  string
	Encrypts  bool        // all traffic, not only the login
	TLS       *tls.Config // of encrypted connections; it must not be modified
	Connector driver.Connector
}

// Error is an error that the server reported.
type Error struct {
	Number  int32
	Class   uint8 // the severity
	Message string
}

var registered Driver

// Register makes the driver available. Package microsoft calls it during its
// initialization, and it is not called later.
func Register(d Driver) { registered = d }

// Registered returns the driver, or nil if the program does not import package microsoft.
func Registered() Driver { return registered }

// Text is [Driver.Text]. The driver must be registered.
func Text(text string) any { return registered.Text(text) }

// Errors is [Driver.Errors]. Without a driver no error is from its server.
func Errors(err error) []Error {
	if registered == nil {
		return nil
	}
	return registered.Errors(err)
}

// Severed is [Driver.Severed]. Without a driver no error is from its server.
func Severed(err error) bool { return registered != nil && registered.Severed(err) }
