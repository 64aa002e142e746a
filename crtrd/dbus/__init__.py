"""BUS SURFACE: translates between org.crtrd.Crtrd1 and control. Decides nothing; jeepney has its door here."""
