// Package serverurl reads the URLs of servers as the client libraries do, and explains
// errors in a URL and insecure connections without quoting a secret.
package serverurl
