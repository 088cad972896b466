package rabbitmq

// UseManagementPort sets where the transport looks for the management API without Config.ManagementURL.
func (t *Transport) UseManagementPort(plain, tls int) {
	t.managementPort, t.managementPortTLS = plain, tls
}
