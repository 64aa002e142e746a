"""crtrd: a systemd-native cron supervisor. Importing the package does nothing but define."""

__version__ = "0.1.0"
