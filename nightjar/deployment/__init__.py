"""What an installation of several parts needs before its first start: certificates and passwords."""
